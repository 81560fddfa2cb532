//! The actions of a commit. Non-file actions are structs. File actions, of which there may be millions, are lines of JSON, with
//! the facts that the checks need.
//!
//! PROTOCOL.md: "Actions".

use crate::action::lines::{Lines, file_action_of};
use crate::action::{Action, Add, DeletionVectorDescriptor};
use crate::error::{Error, Result};
use crate::log::increment::FileSizes;
use crate::replay::logical::LogicalFiles;
use crate::replay::paths::PathMap;

/// The actions of a commit without its commit info, as prepared.
#[derive(Debug, Clone, Default)]
pub struct Actions {
    non_file_actions: Vec<Action>,
    files: Lines,
    added: FilesByPath,
    removed: FilesByPath,
    /// The sums and counts of the files that checksums need.
    sizes: FileSizes,
    changes_data: bool,
    has_cdc: bool,
    /// Whether the added files are in the table already.
    is_re_add: bool,
    /// The first file that is added, or removed, twice.
    duplicate: Option<String>,
}

/// Logical files that can be looked up by path.
#[derive(Debug, Clone, Default)]
struct FilesByPath {
    files: LogicalFiles,
    /// Vectors of the files that have one. A file without one is identified by its path alone.
    vectors: PathMap<DeletionVectorDescriptor>,
}

/// The deletion vector with which a file of a commit is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVector<'a> {
    /// The deletion vector, if the file has one.
    pub vector: Option<&'a DeletionVectorDescriptor>,
}

impl FilesByPath {
    fn insert(&mut self, path: &str, vector: Option<&DeletionVectorDescriptor>) -> bool {
        if let Some(vector) = vector {
            self.vectors.insert(path, vector.clone());
        }
        self.files.insert(path, vector)
    }

    fn get(&self, path: &str) -> Option<FileVector<'_>> {
        let vector = self.vectors.get(path);
        (vector.is_some() || self.files.contains(path, None)).then_some(FileVector { vector })
    }
}

impl Actions {
    /// No actions.
    pub fn new() -> Self {
        Self::default()
    }

    /// No actions yet; the files that will be added are in the table already and are only added again. Files that a winner
    /// mentions are left out, because its actions are newer.
    pub fn re_add() -> Self {
        Self { is_re_add: true, ..Self::default() }
    }

    /// Whether the added files are in the table already.
    pub fn is_re_add(&self) -> bool {
        self.is_re_add
    }

    /// Collects actions.
    ///
    /// # Errors
    /// As [`Actions::push`].
    pub fn of(actions: impl IntoIterator<Item = Action>) -> Result<Self> {
        let mut taken = Self::new();
        actions.into_iter().try_for_each(|action| taken.push(action))?;
        Ok(taken)
    }

    /// Adds an action.
    ///
    /// # Errors
    /// `Internal` if it cannot be serialised (cannot happen).
    pub fn push(&mut self, action: Action) -> Result<()> {
        if let Action::Add(add) = &action {
            self.sizes.add(add);
        }
        self.record(action)
    }

    /// Adds a file that is in the table already and stays; only what the log says of it changes.
    ///
    /// # Errors
    /// As [`Actions::push`].
    pub fn push_re_add(&mut self, add: Add) -> Result<()> {
        self.record(Action::Add(Add { data_change: false, ..add }))
    }

    fn record(&mut self, action: Action) -> Result<()> {
        let is_new = match &action {
            Action::Add(add) => {
                self.changes_data |= add.data_change;
                self.added.insert(&add.path, add.deletion_vector.as_ref())
            }
            Action::Remove(remove) => {
                self.changes_data |= remove.data_change;
                self.sizes.remove(remove);
                self.removed.insert(&remove.path, remove.deletion_vector.as_ref())
            }
            Action::Cdc(_) => {
                self.has_cdc = true;
                true
            }
            _ => {
                self.non_file_actions.push(action);
                return Ok(());
            }
        };
        if let (false, None, Action::Add(_) | Action::Remove(_)) = (is_new, &self.duplicate, &action) {
            self.duplicate = path_of(&action).map(str::to_owned);
        }
        self.files.push(&action)
    }

    /// Adds all actions of another commit.
    ///
    /// # Errors
    /// As [`Actions::push`].
    pub fn append(&mut self, other: Self) -> Result<()> {
        let is_new = |own: &FilesByPath, more: &FilesByPath| own.files.is_disjoint(&more.files);
        // The error names the first file that is in both.
        if !is_new(&self.added, &other.added) || !is_new(&self.removed, &other.removed) {
            other.non_file_actions.into_iter().try_for_each(|action| self.push(action))?;
            return other.files.each(|line| match file_action_of(line)? {
                Some(action) => self.push(action),
                None => Ok(()),
            });
        }
        self.non_file_actions.extend(other.non_file_actions);
        self.files.append(other.files)?;
        for (own, more) in [(&mut self.added, other.added), (&mut self.removed, other.removed)] {
            own.files.append(more.files);
            own.vectors.extend(more.vectors);
        }
        self.sizes.append(other.sizes);
        self.changes_data |= other.changes_data;
        self.has_cdc |= other.has_cdc;
        self.duplicate = self.duplicate.take().or(other.duplicate);
        Ok(())
    }

    /// Whether there is no action.
    pub fn is_empty(&self) -> bool {
        self.non_file_actions.is_empty() && self.files.is_empty()
    }

    /// The non-file actions.
    pub fn non_file_actions(&self) -> &[Action] {
        &self.non_file_actions
    }

    /// The file actions as lines.
    pub fn files(&self) -> &Lines {
        &self.files
    }

    /// Number of added files.
    pub fn num_added(&self) -> usize {
        self.added.files.len()
    }

    /// Number of removed files.
    pub fn num_removed(&self) -> usize {
        self.removed.files.len()
    }

    /// Whether a file of this path is removed.
    pub fn removes(&self, path: &str) -> bool {
        self.removed_file(path).is_some()
    }

    /// The removed file of this path.
    pub fn removed_file(&self, path: &str) -> Option<FileVector<'_>> {
        self.removed.get(path)
    }

    /// Whether a file of this path is added.
    pub fn adds(&self, path: &str) -> bool {
        self.added_file(path).is_some()
    }

    /// The added file of this path.
    pub fn added_file(&self, path: &str) -> Option<FileVector<'_>> {
        self.added.get(path)
    }

    /// Takes the sums and counts of the files that checksums need.
    pub(super) fn take_sizes(&mut self) -> FileSizes {
        std::mem::take(&mut self.sizes)
    }

    /// Whether a file changes the table's rows rather than rearranges them.
    pub fn changes_data(&self) -> bool {
        self.changes_data
    }

    /// Whether there are no removed files and no change files.
    pub fn only_adds(&self) -> bool {
        self.removed.files.is_empty() && !self.has_cdc
    }

    /// Refuses to add, or to remove, a logical file twice.
    ///
    /// # Errors
    /// `Invalid`, naming the file.
    pub fn check_duplicates(&self) -> Result<()> {
        match &self.duplicate {
            Some(path) => Err(Error::invalid("the commit adds or removes this file twice").in_file(path)),
            None => Ok(()),
        }
    }

    /// Removes file actions whose path `should_remove` selects.
    ///
    /// # Errors
    /// As [`Actions::push`].
    pub(super) fn leave_out(&mut self, should_remove: impl Fn(&str) -> bool) -> Result<()> {
        let mut kept = Self {
            non_file_actions: std::mem::take(&mut self.non_file_actions),
            is_re_add: self.is_re_add,
            ..Self::default()
        };
        self.files.each(|line| match file_action_of(line)? {
            Some(action) if path_of(&action).is_some_and(&should_remove) => Ok(()),
            Some(action) => kept.push(action),
            None => Ok(()),
        })?;
        *self = kept;
        Ok(())
    }

    /// Changes file actions in place. `change` must not change their logical files.
    ///
    /// # Errors
    /// Those of `change`.
    pub(super) fn change_files(&mut self, mut change: impl FnMut(&mut Action) -> Result<()>) -> Result<()> {
        let mut changed = Lines::new();
        self.files.each(|line| match file_action_of(line)? {
            Some(mut action) => {
                change(&mut action)?;
                changed.push(&action)
            }
            None => changed.push_line(line),
        })?;
        self.files = changed;
        Ok(())
    }
}

fn path_of(action: &Action) -> Option<&str> {
    match action {
        Action::Add(add) => Some(&add.path),
        Action::Remove(remove) => Some(&remove.path),
        Action::Cdc(cdc) => Some(&cdc.path),
        _ => None,
    }
}
