//! Divides files into groups of about equal bytes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// At most `count` groups of about equal bytes, none of them empty. `of`: the bytes of a file, and its path.
pub(crate) fn balanced<T>(mut files: Vec<T>, count: usize, of: impl Fn(&T) -> (u64, &str)) -> Vec<Vec<T>> {
    // The largest files first, each into the lightest group: the result is at most a third worse than the best possible.
    files.sort_by(|a, b| (Reverse(of(a).0), of(a).1).cmp(&(Reverse(of(b).0), of(b).1)));
    let count = count.clamp(1, files.len().max(1));
    let mut groups: Vec<Vec<T>> = (0..count).map(|_| Vec::new()).collect();
    let mut lightest: BinaryHeap<_> = (0..count).map(|index| Reverse((0_u64, index))).collect();
    for file in files {
        if let Some(mut top) = lightest.peek_mut() {
            let Reverse((bytes, index)) = &mut *top;
            *bytes = bytes.saturating_add(of(&file).0.max(1));
            if let Some(group) = groups.get_mut(*index) {
                group.push(file);
            }
        }
    }
    groups.retain(|files| !files.is_empty());
    groups
}
