//! Progress: counts are reported after changes and at the end, and only inside a scope.

use deltic_table::progress::{Progress, Report, Unit, Watch};

use super::dml::block_on;

fn told(watch: &Watch) -> Vec<(u64, Option<u64>, bool)> {
    watch.changes().into_iter().map(|Report { done, total, ended, .. }| (done, total, ended)).collect()
}

#[test]
fn what_has_changed_is_told() {
    let watch = Watch::default();
    let work = Watch::scope(Some(watch.clone()), async {
        let progress = Progress::begin("OPTIMIZE", Unit::Bytes, Some(10));
        assert_eq!(told(&watch), [(0, Some(10), false)]);
        assert_eq!(told(&watch), []);
        let clone = progress.clone();
        let elsewhere = tokio::spawn(async move {
            // Of no scope.
            Progress::begin("OPTIMIZE", Unit::Files, None).share(1, None).end();
            clone.advance(4);
        });
        elsewhere.await.unwrap();
        assert_eq!(told(&watch), [(4, Some(10), false)]);
        progress.advance(6);
    });
    block_on(work);
    let last = watch.changes();
    assert_eq!(last.len(), 1);
    assert_eq!((last[0].operation.as_str(), last[0].unit.as_str()), ("OPTIMIZE", "bytes"));
    assert_eq!((last[0].done, last[0].ended), (10, true));
    assert_eq!(told(&watch), []);
}

#[test]
fn two_of_one_scope_are_told_apart() {
    let watch = Watch::default();
    let work = async {
        let both = [Progress::begin("VACUUM", Unit::Files, None), Progress::begin("CLONE", Unit::Files, Some(2))];
        let reports = watch.changes();
        assert_ne!(reports[0].id, reports[1].id);
        assert_eq!([reports[0].total, reports[1].total], [None, Some(2)]);
        drop(both);
    };
    block_on(Watch::scope(Some(watch.clone()), work));
    assert_eq!(told(&watch), [(0, None, true), (0, Some(2), true)]);
    block_on(Watch::scope(None, async {
        let progress = Progress::begin("VACUUM", Unit::Files, None);
        progress.advance(1);
    }));
    assert_eq!(told(&watch), []);
}

#[test]
fn parts_are_told_by_their_steps() {
    let watch = Watch::default();
    let work = async {
        let progress = Progress::begin("OPTIMIZE", Unit::Bytes, Some(300));
        let (mut one, mut unknown) = (progress.share(100, Some(8)), progress.share(200, None));
        one.advance(2);
        unknown.advance(1000);
        assert_eq!(told(&watch), [(25, Some(300), false)]);
        one.advance(1000);
        assert_eq!(told(&watch), [(100, Some(300), false)]);
        one.end();
        unknown.end();
        assert_eq!(told(&watch), [(300, Some(300), false)]);
        let mut huge = progress.share(u64::MAX, Some(u64::MAX));
        huge.advance(u64::MAX);
    };
    block_on(Watch::scope(Some(watch.clone()), work));
}
