//! Headers of pages.
//!
//! Parquet format: "PageHeader".

use crate::thrift::{FALSE, I32, STRUCT, Thrift};

pub(super) const DATA_PAGE: i32 = 0;
pub(super) const DICTIONARY_PAGE: i32 = 2;
pub(super) const DATA_PAGE_V2: i32 = 3;
/// The most levels in a header. The deepest part, statistics, is a struct of plain values.
const MAX_DEPTH: usize = 8;

/// The encodings of values or levels that are decoded directly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Encoding {
    Plain,
    Dictionary,
    Rle,
    #[default]
    Other,
}

impl Encoding {
    fn of(number: i32) -> Self {
        match number {
            0 => Self::Plain,
            2 | 8 => Self::Dictionary,
            3 => Self::Rle,
            _ => Self::Other,
        }
    }
}

/// The members of a header that are needed here.
#[derive(Default)]
pub(super) struct Header {
    pub(super) kind: i32,
    pub(super) uncompressed: Option<usize>,
    pub(super) compressed: Option<usize>,
    /// Whether the header has the members of its kind of page.
    pub(super) is_whole: bool,
    pub(super) values: usize,
    pub(super) encoding: Encoding,
    /// Whether repetition and definition levels have the encoding RLE.
    pub(super) levels_are_rle: [bool; 2],
    pub(super) repetition: usize,
    pub(super) definition: usize,
    pub(super) is_uncompressed: bool,
}

impl Header {
    /// Reads a `PageHeader`; `None` if it is not valid.
    pub(super) fn read(thrift: &mut Thrift<'_>) -> Option<Self> {
        let (mut header, mut id) = (Self::default(), 0);
        while let Some(kind) = thrift.field(&mut id)? {
            match (id, kind) {
                (1, I32) => header.kind = thrift.int()?,
                (2, I32) => header.uncompressed = Some(length(thrift)?),
                (3, I32) => header.compressed = Some(length(thrift)?),
                (5, STRUCT) => header.data_page(thrift)?,
                (7, STRUCT) => header.dictionary_page(thrift)?,
                (8, STRUCT) => header.data_page_v2(thrift)?,
                _ => thrift.skip(kind, MAX_DEPTH)?,
            }
        }
        Some(header)
    }

    fn data_page(&mut self, thrift: &mut Thrift<'_>) -> Option<()> {
        let mut id = 0;
        while let Some(kind) = thrift.field(&mut id)? {
            match (id, kind) {
                (1, I32) => self.values = length(thrift)?,
                (2, I32) => self.encoding = Encoding::of(thrift.int()?),
                (3, I32) => self.levels_are_rle[1] = Encoding::of(thrift.int()?) == Encoding::Rle,
                (4, I32) => self.levels_are_rle[0] = Encoding::of(thrift.int()?) == Encoding::Rle,
                _ => thrift.skip(kind, MAX_DEPTH)?,
            }
        }
        self.is_whole |= self.kind == DATA_PAGE;
        Some(())
    }

    fn dictionary_page(&mut self, thrift: &mut Thrift<'_>) -> Option<()> {
        let mut id = 0;
        while let Some(kind) = thrift.field(&mut id)? {
            match (id, kind) {
                (1, I32) => self.values = length(thrift)?,
                // Old writers call the plain values of a dictionary dictionary-encoded.
                (2, I32) => {
                    self.encoding = match Encoding::of(thrift.int()?) {
                        Encoding::Plain | Encoding::Dictionary => Encoding::Plain,
                        other => other,
                    }
                }
                _ => thrift.skip(kind, MAX_DEPTH)?,
            }
        }
        self.is_whole |= self.kind == DICTIONARY_PAGE;
        Some(())
    }

    fn data_page_v2(&mut self, thrift: &mut Thrift<'_>) -> Option<()> {
        let mut id = 0;
        while let Some(kind) = thrift.field(&mut id)? {
            match (id, kind) {
                (1, I32) => self.values = length(thrift)?,
                (4, I32) => self.encoding = Encoding::of(thrift.int()?),
                (5, I32) => self.definition = length(thrift)?,
                (6, I32) => self.repetition = length(thrift)?,
                (7, FALSE) => self.is_uncompressed = true,
                _ => thrift.skip(kind, MAX_DEPTH)?,
            }
        }
        self.is_whole |= self.kind == DATA_PAGE_V2;
        Some(())
    }
}

fn length(thrift: &mut Thrift<'_>) -> Option<usize> {
    usize::try_from(thrift.int()?).ok()
}
