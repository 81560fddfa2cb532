//! Lines of JSON, compressed when there are many.
//!
//! A commit of a million files is hundreds of megabytes of text, several times that as structs, and a few dozen megabytes here:
//! an action is serialised once, when it is pushed, and full pieces of text are compressed. Text shorter than a piece stays
//! plain bytes.
//!
//! Invariants: a piece ends with a line; the lines come out byte by byte as they went in
//! (`lines::lines_round_trip`).
//!
//! PROTOCOL.md: "Delta Log Entries".

use std::sync::Arc;

use serde::Deserialize;

use super::json::{is_file_action, lines, serialize_action};
use super::{Action, Add, Cdc, Remove};
use crate::error::{Error, Result};

/// Bytes of text that are compressed together. Larger pieces would hardly compress better, and a piece is uncompressed in
/// memory while it is read or written.
const PIECE: usize = 1024 * 1024;
/// Level of the compression: on such lines the fastest level compresses as well as the next ones.
const LEVEL: i32 = 1;

/// Actions as lines of JSON.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    pieces: Vec<Piece>,
    /// The piece that is not full yet.
    open: Vec<u8>,
    length: u64,
}

#[derive(Debug, Clone)]
struct Piece {
    packed: Arc<[u8]>,
    length: usize,
}

impl Lines {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lines that were serialised elsewhere.
    ///
    /// # Errors
    /// As [`Lines::push`].
    pub fn of(serialized: &[u8]) -> Result<Self> {
        let mut kept = Self::new();
        lines(serialized).filter(|line| !line.is_empty()).try_for_each(|line| kept.push_line(line))?;
        Ok(kept)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Bytes of the text.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Bytes of memory that it takes.
    pub fn held(&self) -> usize {
        self.open.capacity() + self.pieces.iter().map(|piece| piece.packed.len()).sum::<usize>()
    }

    /// Serialises an action as the last line.
    ///
    /// # Errors
    /// `Internal` if it cannot be serialised or compressed (cannot happen).
    pub fn push(&mut self, action: &Action) -> Result<()> {
        let before = self.open.len();
        if let Err(e) = serialize_action(action, &mut self.open) {
            self.open.truncate(before);
            return Err(e);
        }
        self.length += (self.open.len() - before) as u64;
        self.close_if_full()
    }

    /// Adds a line, without its end.
    ///
    /// # Errors
    /// As [`Lines::push`].
    pub fn push_line(&mut self, line: &[u8]) -> Result<()> {
        self.open.extend_from_slice(line);
        self.open.push(b'\n');
        self.length += line.len() as u64 + 1;
        self.close_if_full()
    }

    /// Adds the lines of another after these.
    ///
    /// # Errors
    /// As [`Lines::push`].
    pub fn append(&mut self, other: Self) -> Result<()> {
        self.length += other.length;
        if other.pieces.is_empty() {
            self.open.extend_from_slice(&other.open);
            return self.close_if_full();
        }
        self.close()?;
        self.pieces.extend(other.pieces);
        self.open = other.open;
        Ok(())
    }

    fn close_if_full(&mut self) -> Result<()> {
        if self.open.len() < PIECE { Ok(()) } else { self.close() }
    }

    fn close(&mut self) -> Result<()> {
        if self.open.is_empty() {
            return Ok(());
        }
        let failed = |e| Error::internal("lines of a commit cannot be compressed").caused_by(e);
        let packed = zstd::bulk::compress(&self.open, LEVEL).map_err(failed)?;
        self.pieces.push(Piece { packed: packed.into(), length: self.open.len() });
        self.open.clear();
        Ok(())
    }

    /// The text, piece by piece. Each piece ends with a line.
    pub fn pieces(&self) -> impl Iterator<Item = Result<Vec<u8>>> + Send + use<> {
        let open = Some(self.open.clone()).filter(|open| !open.is_empty()).map(Ok);
        self.pieces.clone().into_iter().map(|piece| piece.text()).chain(open)
    }

    /// The whole text.
    ///
    /// # Errors
    /// As [`Lines::each`].
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut text = Vec::with_capacity(usize::try_from(self.length).unwrap_or_default());
        for piece in self.pieces() {
            text.extend(piece?);
        }
        Ok(text)
    }

    /// Calls with each line, without its end, until one fails.
    ///
    /// # Errors
    /// Those of `visit`; `Internal` if a piece cannot be read back.
    pub fn each(&self, mut visit: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut visit_all = |text: &[u8]| lines(text).filter(|line| !line.is_empty()).try_for_each(&mut visit);
        for piece in &self.pieces {
            visit_all(&piece.text()?)?;
        }
        visit_all(&self.open)
    }

    /// The lines of non-file actions.
    ///
    /// # Errors
    /// As [`Lines::each`].
    pub fn non_file_lines(&self) -> Result<Vec<u8>> {
        let mut non_file_lines = Vec::new();
        self.each(|line| {
            if !is_file_action(line) {
                non_file_lines.extend_from_slice(line);
                non_file_lines.push(b'\n');
            }
            Ok(())
        })?;
        Ok(non_file_lines)
    }
}

impl Piece {
    fn text(&self) -> Result<Vec<u8>> {
        let failed = |e| Error::internal("compressed lines of a commit cannot be read back").caused_by(e);
        zstd::bulk::decompress(&self.packed, self.length).map_err(failed)
    }
}

/// The file action in a line of [`Lines`], if it is one.
///
/// # Errors
/// `Internal` if it is not a line of [`serialize_action`].
pub fn file_action_of(line: &[u8]) -> Result<Option<Action>> {
    #[derive(Deserialize)]
    struct Members {
        add: Option<Add>,
        remove: Option<Remove>,
        cdc: Option<Cdc>,
    }
    if !is_file_action(line) {
        return Ok(None);
    }
    let unreadable = |e| Error::internal("a serialised action cannot be parsed").caused_by(e);
    let members: Members = serde_json::from_slice(line).map_err(unreadable)?;
    let (add, remove, cdc) =
        (members.add.map(Action::Add), members.remove.map(Action::Remove), members.cdc.map(Action::Cdc));
    Ok(add.or(remove).or(cdc))
}
