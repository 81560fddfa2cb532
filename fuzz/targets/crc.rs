//! `<version>.crc`: a parsed checksum keeps its invariants, and is the same after printing and parsing.

use deltic_protocol::action::{Metadata, Protocol};
use deltic_protocol::log::crc::{DELETED_RECORD_BINS, VersionChecksum, all_files};

pub(crate) fn run(data: &[u8]) {
    let _ = all_files(data);
    let metadata = serde_json::from_str::<Metadata>(r#"{"id":"m","schemaString":"s"}"#).unwrap();
    let protocol =
        Protocol { min_reader_version: 1, min_writer_version: 2, reader_features: None, writer_features: None };
    let old = VersionChecksum::parse_old(data, &metadata, &protocol);
    let Ok(read) = VersionChecksum::parse(data) else {
        if let Ok(old) = old {
            check(&old);
            assert!(old.metadata == metadata || old.protocol == protocol);
        }
        return;
    };
    check(&read);
}

fn check(read: &VersionChecksum) {
    assert!(read.num_files >= 0 && read.table_size_bytes >= 0);
    assert_eq!((read.num_metadata, read.num_protocol), (1, 1));
    if let Some(histogram) = &read.file_size_histogram {
        assert_eq!(histogram.file_counts.len(), histogram.sorted_bin_boundaries.len());
        assert_eq!(histogram.total_bytes.len(), histogram.sorted_bin_boundaries.len());
        assert!(histogram.sorted_bin_boundaries.is_sorted());
    }
    if let Some(histogram) = &read.deleted_record_counts_histogram_opt {
        assert_eq!(histogram.deleted_record_counts.len(), DELETED_RECORD_BINS);
    }
    let printed = read.to_json().unwrap();
    assert_eq!(&VersionChecksum::parse(printed.as_bytes()).unwrap(), read);
}
