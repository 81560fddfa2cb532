//! `_delta_log`: names, segments, the checkpoint hint and the version checksum.

use deltic_protocol::error::Kind;
use deltic_protocol::log::hint::{self, LastCheckpoint};
use deltic_protocol::log::listing::{Gap, fill_gap, gap};
use deltic_protocol::log::name::{StagedCommit, checkpoint_name, checksum_name, commit_name, version_prefix};
use deltic_protocol::log::{CheckpointKind, LogFile, LogName, Segment};

const UUID: &str = "80a083e8-7026-4e79-81be-64bd76c43a11";

/// File names and what they are parsed to; `-` for no log file.
const NAMES: &str = "
00000000000000000000.json                                                      commit 0
00000000000000000042.json                                                      commit 42
09223372036854775807.json                                                      commit 9223372036854775807
09223372036854775808.json                                                      -
18446744073709551616.json                                                      -
99999999999999999999.json                                                      -
0000000000000000042.json                                                       -
000000000000000000042.json                                                     -
+0000000000000000042.json                                                      -
0000000000000000004x.json                                                      -
00000000000000000042.JSON                                                      -
00000000000000000042.json.tmp                                                  -
.00000000000000000042.json                                                     -
00000000000000000042                                                           -
00000000000000000042.                                                          -
00000000000000000042.crc                                                       checksum 42
.00000000000000000042.json.crc                                                 -
00000000000000000042.json.crc                                                  -
00000000000000000010.checkpoint.parquet                                        classic 10
00000000000000000010.checkpoint.json                                           -
00000000000000000010.checkpoint                                                -
00000000000000000010.checkpoint.parquet.tmp                                    -
00000000000000000010.checkpoint.0000000001.0000000003.parquet                  part 10 1/3
00000000000000000010.checkpoint.0000000003.0000000003.parquet                  part 10 3/3
00000000000000000010.checkpoint.0000000001.0000000001.parquet                  part 10 1/1
00000000000000000010.checkpoint.0000000000.0000000003.parquet                  -
00000000000000000010.checkpoint.0000000004.0000000003.parquet                  -
00000000000000000010.checkpoint.0000000000.0000000000.parquet                  -
00000000000000000010.checkpoint.0000000001.9999999999.parquet                  -
00000000000000000010.checkpoint.1.3.parquet                                    -
00000000000000000010.checkpoint.0000000001.0000000003.json                     -
00000000000000000010.checkpoint.0000000001.parquet                             -
00000000000000000010.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json      uuid 10 json
00000000000000000010.checkpoint.80A083E8-7026-4e79-81be-64bd76c43a11.parquet   uuid 10 parquet
00000000000000000010.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.orc       -
00000000000000000010.checkpoint.80a083e870264e7981be64bd76c43a11.json          -
00000000000000000010.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a1g.json      -
00000000000000000010.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a1.json       -
00000000000000000004.00000000000000000006.compacted.json                       compacted 4 6
00000000000000000006.00000000000000000006.compacted.json                       -
00000000000000000006.00000000000000000004.compacted.json                       -
00000000000000000004.00000000000000000006.compacted.parquet                    -
00000000000000000004.00000000000000000006.json                                 -
00000000000000000004.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json                 -
_last_checkpoint                                                               -
_staged_commits                                                                -
_copy_into_log                                                                 -
00000000000000000004.json/x                                                    -
x.y.z.a.b.c.d                                                                  -
٠٠٠٠٠٠٠٠٠٠.json                                                                -
";

#[test]
fn names() {
    for line in NAMES.lines().filter(|line| !line.trim().is_empty()) {
        let (name, meaning) = line.split_once(' ').unwrap();
        let parsed = LogName::parse(name);
        let actual = match &parsed {
            None => "-".to_owned(),
            Some(LogName::Commit { version }) => format!("commit {version}"),
            Some(LogName::Checksum { version }) => format!("checksum {version}"),
            Some(LogName::CheckpointClassic { version }) => format!("classic {version}"),
            Some(LogName::CheckpointMultiPart { version, part, parts }) => format!("part {version} {part}/{parts}"),
            Some(LogName::CheckpointUuid { version, format, .. }) => {
                format!("uuid {version} {}", format!("{format:?}").to_lowercase())
            }
            Some(LogName::Compacted { start, end }) => format!("compacted {start} {end}"),
        };
        assert_eq!(actual, meaning.trim(), "{name}");
        if let Some(parsed) = parsed {
            assert_eq!(parsed.to_string(), name);
        }
    }
    assert_eq!(LogName::parse(""), None);
    assert_eq!(commit_name(7), "00000000000000000007.json");
    assert_eq!(checksum_name(7), "00000000000000000007.crc");
    assert_eq!(checkpoint_name(7), "00000000000000000007.checkpoint.parquet");
    assert!(version_prefix(7) < commit_name(7) && commit_name(6) < version_prefix(7));
}

#[test]
fn staged_commits() {
    let name = "00000000000000000007.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json";
    let staged = StagedCommit::parse(name).unwrap();
    assert_eq!((staged.version, staged.uuid.as_str()), (7, "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"));
    assert_eq!(staged.to_string(), name);
    assert_eq!(staged.path(), format!("_staged_commits/{name}"));
    // Among the commits, the name of a staged commit is no log file.
    assert_eq!(LogName::parse(name), None);
    for other in [
        "00000000000000000007.json",
        "7.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json",
        "00000000000000000007.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.parquet",
        "00000000000000000007.3a0d65cd405649b8937b95f9e3ee90e5.json",
        "00000000000000000007.checkpoint.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json",
    ] {
        assert_eq!(StagedCommit::parse(other), None, "{other}");
    }
}

/// Short forms: `7` commit, `7c` classic checkpoint, `7p2/3` part, `7u` UUID checkpoint, `4-6` compaction, `7s` checksum.
fn file(short: &str) -> LogFile {
    let number = |text: &str| text.parse::<u64>().unwrap();
    let name = if let Some((start, end)) = short.split_once('-') {
        LogName::Compacted { start: number(start), end: number(end) }
    } else if let Some((version, part)) = short.split_once('p') {
        let (part, parts) = part.split_once('/').unwrap();
        LogName::CheckpointMultiPart {
            version: number(version),
            part: part.parse().unwrap(),
            parts: parts.parse().unwrap(),
        }
    } else if let Some(version) = short.strip_suffix('c') {
        LogName::CheckpointClassic { version: number(version) }
    } else if let Some(version) = short.strip_suffix('u') {
        let format = deltic_protocol::log::name::CheckpointFormat::Json;
        LogName::CheckpointUuid { version: number(version), uuid: UUID.to_owned(), format }
    } else if let Some(version) = short.strip_suffix('s') {
        LogName::Checksum { version: number(version) }
    } else {
        LogName::Commit { version: number(short) }
    };
    LogFile { file_name: name.to_string(), name, size: 100, modified_ms: 1 }
}

fn short(file: &LogFile) -> String {
    match &file.name {
        LogName::Commit { version } => format!("{version}"),
        LogName::Compacted { start, end } => format!("{start}-{end}"),
        LogName::Checksum { version } => format!("{version}s"),
        LogName::CheckpointClassic { version } => format!("{version}c"),
        LogName::CheckpointMultiPart { version, part, parts } => format!("{version}p{part}/{parts}"),
        LogName::CheckpointUuid { version, .. } => format!("{version}u"),
    }
}

/// Listing `|` target, may be empty `=` version: checkpoint; tail; checksum; or kind of error and part of the message.
const SEGMENTS: &str = "
# without a checkpoint
0                               |    = 0: ; 0;
0 1 2                           |    = 2: ; 0 1 2;
2 0 1                           |    = 2: ; 0 1 2;
0 0 1 1                         |    = 1: ; 0 1;
0 1 2                           | 1  = 1: ; 0 1;
0 1 2 1s 0s                     |    = 2: ; 0 1 2; 1s
0 1 2 2s                        | 1  = 1: ; 0 1;
0 1                             | 2  = VersionNotFound has versions 0 to 1
                                |    = NotFound not a Delta table
3s                              |    = NotFound not a Delta table
3p1/2                           |    = NotFound not a Delta table
0 2                             |    = Corrupt no commit for version 1
0 2                             | 0  = 0: ; 0;
1 2                             |    = Corrupt no commit for version 0
0 1 9223372036854775807         |    = Corrupt no commit for version 2
9223372036854775807c            |    = 9223372036854775807: 9223372036854775807c; ;
# with one
0 1 2 2c 3 4                    |    = 4: 2c; 3 4;
0 1 2 2c 3 4                    | 1  = 1: ; 0 1;
2c                              |    = 2: 2c; ;
2c 3                            |    = 3: 2c; 3;
2c 1 3                          |    = 3: 2c; 3;
5c 2 3                          |    = 5: 5c; ;
2 2c 4                          |    = Corrupt no commit for version 3, which comes after the checkpoint of version 2
2 2c 4                          | 2  = 2: 2c; ;
2 2c 3                          | 1  = VersionNotFound no longer in the log; the table has versions 2 to 3
2 2c 3                          | 9  = VersionNotFound has versions 2 to 3
1 2 2c 3                        | 1  = VersionNotFound has versions 2 to 3
0 2 4c 5                        | 2  = Corrupt no commit for version 1
2c 3 4 1s 2s                    |    = 4: 2c; 3 4; 2s
2c 3 4 1s                       |    = 4: 2c; 3 4;
2c 3 4 3s 4s                    |    = 4: 2c; 3 4; 4s
# with several
2c 3 4c 5                       |    = 5: 4c; 5;
2c 3 4c 5                       | 3  = 3: 2c; 3;
2c 2u 2p1/2 2p2/2               |    = 2: 2u; ;
2c 2p1/2 2p2/2                  |    = 2: 2c; ;
2p1/3 2p3/3 2p2/3 2p2/2 2p1/2   |    = 2: 2p1/2 2p2/2; ;
2p1/3 2p2/3 2p3/3 3             |    = 3: 2p1/3 2p2/3 2p3/3; 3;
1c 2 2p1/3 2p3/3 3              |    = 3: 1c; 2 3;
1c 2 2p1/2 2p2/3 3              |    = 3: 1c; 2 3;
1c 2 2p1/2 2p1/2                |    = 2: 1c; 2;
2p1/1                           |    = 2: 2p1/1; ;
# with compactions
0 1 2 3 1-2                     |    = 3: ; 0 1-2 3;
0 1 2 3 0-3 1-2                 |    = 3: ; 0-3;
0 1 2 3 4 0-1 1-3               |    = 4: ; 0 1-3 4;
0 1 2 3 0-3                     | 2  = 2: ; 0 1 2;
0 1c 2 3 0-3                    |    = 3: 1c; 2 3;
0 1c 2 3 1-3                    |    = 3: 1c; 2 3;
0 1c 2 3 2-3                    |    = 3: 1c; 2-3;
0 3 1-2                         |    = 3: ; 0 1-2 3;
0 1 2 0-5                       |    = 2: ; 0 1 2;
0 1 2 3 0-2 2-3                 |    = 3: ; 0-2 3;
0 3 1-5                         |    = Corrupt no commit for version 1
0-2                             |    = NotFound not a Delta table
";

#[test]
fn segments() {
    for line in SEGMENTS.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let (case, expected) = line.split_once('=').unwrap();
        let (listing, target) = case.split_once('|').unwrap();
        let listing: Vec<LogFile> = listing.split_whitespace().map(file).collect();
        let target = target.trim();
        let target = (!target.is_empty()).then(|| target.parse().unwrap());
        let expected = expected.trim();
        match Segment::choose(&listing, target, true) {
            Ok(segment) => {
                let names = |files: &[LogFile]| files.iter().map(short).collect::<Vec<_>>().join(" ");
                let checkpoint = segment.checkpoint.as_ref().map_or(String::new(), |c| names(&c.files));
                let checksum = segment.checksum.as_ref().map_or(String::new(), short);
                let actual = format!("{}: {checkpoint}; {}; {checksum}", segment.version, names(&segment.tail));
                assert_eq!(actual.trim(), expected, "{line}");
            }
            Err(error) => {
                let (kind, part) = expected.split_once(' ').unwrap_or((expected, ""));
                let actual = format!("{:?}", error.kind());
                assert_eq!(actual.split(' ').next(), Some(kind), "{line}: {error}");
                assert!(error.message().contains(part), "{line}: {error}");
            }
        }
    }
}

#[test]
fn compactions_are_used_only_if_requested() {
    let listing: Vec<LogFile> = ["0", "1", "2", "0-2"].into_iter().map(file).collect();
    assert_eq!(Segment::choose(&listing, None, false).unwrap().tail.len(), 3);
    assert_eq!(Segment::choose(&listing, None, true).unwrap().tail.len(), 1);
    let gap: Vec<LogFile> = ["0", "2", "0-2"].into_iter().map(file).collect();
    assert_eq!(Segment::choose(&gap, None, false).unwrap_err().kind(), &Kind::Corrupt);
}

#[test]
fn segments_list_all_commits() {
    let listing: Vec<LogFile> = ["1", "2", "2c", "3", "4"].into_iter().map(file).collect();
    let segment = Segment::choose(&listing, Some(3), true).unwrap();
    assert_eq!(segment.commits.iter().map(short).collect::<Vec<_>>(), ["1", "2", "3"]);
    assert_eq!(segment.latest_commit().map(short).unwrap(), "3");
    assert_eq!(segment.checkpoint_version(), Some(2));
    let cleaned: Vec<LogFile> = ["1", "2c"].into_iter().map(file).collect();
    assert_eq!(Segment::choose(&cleaned, None, true).unwrap().latest_commit(), None);
}

#[test]
fn of_a_file_listed_twice_the_newer_entry_counts() {
    let mut newer = file("1");
    (newer.size, newer.modified_ms) = (7, 9);
    for listing in [[file("0"), file("1"), newer.clone()], [newer.clone(), file("1"), file("0")]] {
        let segment = Segment::choose(&listing, None, true).unwrap();
        assert_eq!(segment.tail.iter().map(|f| f.size).collect::<Vec<_>>(), [100, 7]);
    }
}

#[test]
fn the_newer_of_two_checkpoints_of_a_version_is_chosen() {
    let at =
        |uuid: &str, time| LogFile::parse(&format!("00000000000000000003.checkpoint.{uuid}.parquet"), 1, time).unwrap();
    let first = at("00000000-0000-0000-0000-000000000001", 5);
    let second = at("00000000-0000-0000-0000-000000000000", 6);
    for listing in [[first.clone(), second.clone()], [second.clone(), first]] {
        let checkpoint = Segment::choose(&listing, None, true).unwrap().checkpoint.unwrap();
        assert_eq!(checkpoint.files, std::slice::from_ref(&second));
        assert!(matches!(checkpoint.kind, CheckpointKind::Uuid(_)));
    }
}

/// The example of PROTOCOL.md.
const CANONICAL_SOURCE: &str = r#"{"k0":"'v 0'", "checksum": "adsaskfljadfkjadfkj", "k1":{"k2": 2, "k3": ["v3", [1, 2], {"k4": "v4", "k5": ["v5", "v6", "v7"]}]}}"#;
const CANONICAL: &str = r#""k0"="%27v%200%27","k1"+"k2"=2,"k1"+"k3"+0="v3","k1"+"k3"+1+0=1,"k1"+"k3"+1+1=2,"k1"+"k3"+2+"k4"="v4","k1"+"k3"+2+"k5"+0="v5","k1"+"k3"+2+"k5"+1="v6","k1"+"k3"+2+"k5"+2="v7""#;

#[test]
fn canonical_json() {
    assert_eq!(hint::canonical(CANONICAL_SOURCE).unwrap(), CANONICAL);
    assert_eq!(hint::checksum(CANONICAL_SOURCE).unwrap(), "6a92d155a59bf2eecbd4b4ec7fd1f875");
    for (json, canonical) in [
        (r#"{}"#, Some("")),
        (r#"{"a": {}, "b": []}"#, Some("")),
        (r#"{"b":null,"a":true}"#, Some(r#""a"=true,"b"=null"#)),
        (r#"{"a":1.50,"b":1e5,"c":-0}"#, Some(r#""a"=1.50,"b"=1e5,"c"=-0"#)),
        (r#"{"a":"https://delta.io"}"#, Some(r#""a"="https%3A%2F%2Fdelta.io""#)),
        (r#"{"ä\n":"~-._>"}"#, Some(r#""%C3%A4%0A"="~-._%3E""#)),
        (r#"{"a":{"checksum":1}}"#, Some(r#""a"+"checksum"=1"#)),
        (r#"{"checksum":{"a":1},"b":2}"#, Some(r#""b"=2,"checksum"+"a"=1"#)),
        (
            r#"{"a":[0,1,2,3,4,5,6,7,8,9,10]}"#,
            Some(r#""a"+0=0,"a"+1=1,"a"+10=10,"a"+2=2,"a"+3=3,"a"+4=4,"a"+5=5,"a"+6=6,"a"+7=7,"a"+8=8,"a"+9=9"#),
        ),
        (r#"{"a":1,"a":1}"#, None),
        (r#"{"x":{"a":1,"a":2}}"#, None),
        (r#"{"x":[{"a":1,"\u0061":2}]}"#, None),
        (r#"{"a":1"#, None),
        ("", None),
    ] {
        assert_eq!(hint::canonical(json).as_deref(), canonical, "{json}");
    }
}

/// A hint and the version that is read from it, if it is valid.
const HINTS: &[(&str, Option<u64>)] = &[
    (r#"{"version":10,"size":3}"#, Some(10)),
    (r#"{"version":10,"size":-1,"parts":3,"sizeInBytes":9,"numOfAddFiles":1,"tags":{"a":"b"}}"#, Some(10)),
    (r#"{"version":10}"#, Some(10)),
    (r#"{"version":10,"size":3,"parts":null,"checksum":null,"unknown":[1]}"#, Some(10)),
    (
        r#"{"version":10,"size":3,"v2Checkpoint":{"path":"a.json","sizeInBytes":1,"modificationTime":2,
            "nonFileActions":[{"protocol":{}}],"sidecarFiles":[{"path":"s","sizeInBytes":1,"modificationTime":2}]}}"#,
        Some(10),
    ),
    // MD5 of `"size"=3,"version"=10`
    (r#"{"version":10,"size":3,"checksum":"004278f3c68a651ecd67be175bfee481"}"#, Some(10)),
    (r#"{"version":11,"size":3,"checksum":"004278f3c68a651ecd67be175bfee481"}"#, None),
    (r#"{"version":10,"size":3,"checksum":""}"#, None),
    (r#"{"version":10,"size":3,"checksum":5}"#, None),
    (r#"{"version":-1,"size":3}"#, None),
    (r#"{"version":"10","size":3}"#, None),
    (r#"{"version":9223372036854775808,"size":3}"#, None),
    (r#"{"version":10.0,"size":3}"#, None),
    (r#"{"version":10,"size":"3"}"#, None),
    (r#"{"version":10,"size":3,"parts":-1}"#, None),
    (r#"{"version":10,"size":3,"parts":1.5}"#, None),
    (r#"{"version":10,"size":3,"v2Checkpoint":[]}"#, None),
    (r#"{"version":10,"size":3,"version":10}"#, None),
    (r#"{"version":10,"size":3,"other":{"a":1,"a":1}}"#, None),
    (r#"{"size":3}"#, None),
    (r#"{"version":10,"size":3"#, None),
    (r#"{"version":10,"size":3} x"#, None),
    ("[10]", None),
    ("10", None),
    ("", None),
];

#[test]
fn hints() {
    for (text, version) in HINTS {
        assert_eq!(LastCheckpoint::parse(text.as_bytes()).ok().map(|hint| hint.version), *version, "{text}");
    }
    assert_eq!(LastCheckpoint::parse(b"{\"version\":10,\"size\":3,\"tags\":{\"\xff\":\"\"}}").ok(), None);
    let printed =
        LastCheckpoint { version: 10, size: 3, checksum: Some("old".to_owned()), ..Default::default() }.to_json();
    assert_eq!(printed, r#"{"version":10,"size":3,"checksum":"004278f3c68a651ecd67be175bfee481"}"#);
}

#[test]
fn the_sort_order_of_delta_spark_is_accepted() {
    // An array of more than ten values: delta-spark sorts with the `=`, so that `…+1=1` comes after `…+10=10`.
    let text = r#"{"version":1,"size":1,"x":[0,1,2,3,4,5,6,7,8,9,10]}"#;
    let mut pairs: Vec<String> = (0..=10).map(|i| format!("\"x\"+{i}={i}")).collect();
    pairs.extend(["\"version\"=1".to_owned(), "\"size\"=1".to_owned()]);
    pairs.sort();
    assert_ne!(pairs.join(","), hint::canonical(text).unwrap());
    let checksum: String = md5_of(&pairs.join(","));
    let signed = text.replace("\"size\":1", &format!("\"size\":1,\"checksum\":\"{checksum}\""));
    assert!(LastCheckpoint::parse(signed.as_bytes()).is_ok());
    assert!(LastCheckpoint::parse(signed.replace("[0,1", "[1,1").as_bytes()).is_err());
}

fn md5_of(text: &str) -> String {
    use md5::{Digest, Md5};
    Md5::digest(text.as_bytes()).iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn long_keys_with_long_arrays_are_refused() {
    let key = "k".repeat(200_000);
    let text = format!(r#"{{"version":1,"size":1,"{key}":[{}0]}}"#, "0,".repeat(200_000));
    assert_eq!(LastCheckpoint::parse(text.as_bytes()).ok(), None);
}

mod checksums {
    use deltic_protocol::error::Kind;
    use deltic_protocol::log::crc::VersionChecksum;

    const REQUIRED: &str = r#""tableSizeBytes":10,"numFiles":2,"numMetadata":1,"numProtocol":1,
        "metadata":{"id":"a","format":{"provider":"parquet","options":{}},"schemaString":"{}","partitionColumns":[],
        "configuration":{}},"protocol":{"minReaderVersion":1,"minWriterVersion":2}"#;

    fn check(extra: &str) -> Result<VersionChecksum, String> {
        VersionChecksum::parse(format!("{{{REQUIRED}{extra}}}").as_bytes()).map_err(|error| {
            assert_eq!(error.kind(), &Kind::Corrupt);
            error.message().to_owned()
        })
    }

    #[test]
    fn required_and_optional_members() {
        let plain = check("").unwrap();
        assert_eq!((plain.num_files, plain.table_size_bytes, plain.in_commit_timestamp_opt), (2, 10, None));
        let full = check(
            r#","txnId":"t","inCommitTimestampOpt":5,"setTransactions":[{"appId":"x","version":3}],"unknown":{},
            "domainMetadata":[{"domain":"d","configuration":"","removed":false}],"numDeletedRecordsOpt":1,
            "fileSizeHistogram":{"sortedBinBoundaries":[0,5],"fileCounts":[1,1],"totalBytes":[4,6]},"allFiles":[{}],
            "deletedRecordCountsHistogramOpt":{"deletedRecordCounts":[1,0,0,0,0,0,0,0,0,1]},
            "numDeletionVectorsOpt":1"#,
        )
        .unwrap();
        assert_eq!(full.set_transactions.as_ref().unwrap()[0].version, 3);
        assert_eq!(full.domain_metadata.as_ref().unwrap()[0].domain, "d");
        let again = full.to_json().unwrap();
        assert!(!again.contains("allFiles"));
        assert_eq!(VersionChecksum::parse(again.as_bytes()).unwrap(), full);
    }

    #[test]
    fn nulls_are_absent() {
        assert_eq!(check(r#","txnId":null,"setTransactions":null,"histogramOpt":null"#).unwrap(), check("").unwrap());
    }

    #[test]
    fn the_old_name_of_the_histogram() {
        let bins = r#"{"sortedBinBoundaries":[0],"fileCounts":[2],"totalBytes":[10]}"#;
        let old = check(&format!(r#","histogramOpt":{bins}"#)).unwrap();
        assert_eq!(old, check(&format!(r#","fileSizeHistogram":{bins}"#)).unwrap());
        assert_eq!(old, check(&format!(r#","fileSizeHistogram":{bins},"histogramOpt":{bins}"#)).unwrap());
        assert!(old.to_json().unwrap().contains("fileSizeHistogram"));
    }

    #[test]
    fn invalid_checksums() {
        for extra in [
            r#","fileSizeHistogram":{"sortedBinBoundaries":[0,5],"fileCounts":[1],"totalBytes":[4,6]}"#,
            r#","fileSizeHistogram":{"sortedBinBoundaries":[1],"fileCounts":[1],"totalBytes":[4]}"#,
            r#","fileSizeHistogram":{"sortedBinBoundaries":[0,0],"fileCounts":[1,1],"totalBytes":[4,4]}"#,
            r#","fileSizeHistogram":{"sortedBinBoundaries":[],"fileCounts":[],"totalBytes":[]}"#,
            r#","deletedRecordCountsHistogramOpt":{"deletedRecordCounts":[1]}"#,
            r#","numDeletedRecordsOpt":-1"#,
            r#","inCommitTimestampOpt":"5""#,
            r#","setTransactions":{}"#,
            r#","txnId":5"#,
            r#"} {"#,
        ] {
            check(extra).unwrap_err();
        }
        for (from, to) in [
            ("\"numFiles\":2", "\"numFiles\":-2"),
            ("\"numMetadata\":1", "\"numMetadata\":2"),
            ("\"numProtocol\":1", "\"numProtocol\":0"),
            ("\"tableSizeBytes\":10", "\"tableSizeBytes\":1e400"),
            ("\"protocol\"", "\"other\""),
            ("\"metadata\"", "\"other\""),
        ] {
            let text = format!("{{{}}}", REQUIRED.replace(from, to));
            let error = VersionChecksum::parse(text.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), &Kind::Corrupt, "{text}");
        }
    }
}

mod properties {
    use std::collections::{BTreeMap, BTreeSet};

    use deltic_protocol::action::{Metadata, Protocol, Sidecar, Txn};
    use deltic_protocol::log::crc::VersionChecksum;
    use deltic_protocol::log::hint::{LastCheckpoint, UuidCheckpointHint};
    use deltic_protocol::log::segment::{checkpoints as checkpoints_of, incomplete_checkpoints, readable_commits};
    use deltic_protocol::log::{CheckpointKind, LogFile, LogName, Segment};
    use proptest::prelude::*;

    use super::file;

    fn short_name() -> impl Strategy<Value = String> {
        let version = 0..8_u64;
        prop_oneof![
            6 => version.clone().prop_map(|v| v.to_string()),
            1 => version.clone().prop_map(|v| format!("{v}c")),
            1 => version.clone().prop_map(|v| format!("{v}u")),
            2 => (version.clone(), 1..=3_u32, 1..=3_u32)
                .prop_map(|(v, part, parts)| format!("{v}p{}/{parts}", part.min(parts))),
            2 => (version.clone(), 1..4_u64).prop_map(|(v, more)| format!("{v}-{}", v + more)),
            1 => version.prop_map(|v| format!("{v}s")),
        ]
    }

    /// Versions with a complete checkpoint, by brute force.
    fn checkpoints(listing: &[LogFile]) -> BTreeSet<u64> {
        (0..8)
            .filter(|v| {
                let has = |name: LogName| listing.iter().any(|f| f.name == name);
                let whole =
                    |parts: u32| (1..=parts).all(|part| has(LogName::CheckpointMultiPart { version: *v, part, parts }));
                has(LogName::CheckpointClassic { version: *v })
                    || listing
                        .iter()
                        .any(|f| matches!(f.name, LogName::CheckpointUuid { version, .. } if version == *v))
                    || (1..=3).any(whole)
            })
            .collect()
    }

    /// The smallest number of files that cover `from..=to`, by brute force.
    fn fewest(listing: &[LogFile], from: u64, to: u64, use_compaction: bool) -> Option<usize> {
        if from > to {
            return Some(0);
        }
        let ends: BTreeSet<u64> = listing
            .iter()
            .filter_map(|f| match f.name {
                LogName::Commit { version } if version == from => Some(version),
                LogName::Compacted { start, end } if use_compaction && start == from && end <= to => Some(end),
                _ => None,
            })
            .collect();
        ends.into_iter().filter_map(|end| fewest(listing, end + 1, to, use_compaction)).min().map(|n| n + 1)
    }

    proptest! {
        #![proptest_config(crate::cases(2000))]

        #[test]
        fn segments_cover_exactly_once(
            names in prop::collection::vec(short_name(), 0..24),
            all_commits: bool,
            target in prop::option::of(0..9_u64),
            use_compaction: bool,
        ) {
            // Random listings usually have gaps. Those with all commits test the choice of compactions.
            let commits = (0..8_u64).filter(|_| all_commits).map(|v| v.to_string());
            let listing: Vec<LogFile> = names.into_iter().chain(commits).map(|name| file(&name)).collect();
            let checkpoints = checkpoints(&listing);
            let commits: BTreeSet<u64> = listing.iter().filter_map(|f| match f.name {
                LogName::Commit { version } => Some(version),
                _ => None,
            }).collect();
            let latest = commits.union(&checkpoints).max().copied();
            let chosen = Segment::choose(&listing, target, use_compaction);
            let Some(latest) = latest else {
                prop_assert!(chosen.unwrap_err().is_not_found());
                return Ok(());
            };
            let version = target.unwrap_or(latest);
            if version > latest {
                prop_assert!(chosen.unwrap_err().is_version_not_found());
                return Ok(());
            }
            let checkpoint = checkpoints.range(..=version).next_back().copied();
            let first = checkpoint.map_or(0, |v| v + 1);
            let best = fewest(&listing, first, version, use_compaction);
            match chosen {
                Ok(segment) => {
                    prop_assert_eq!(segment.version, version);
                    prop_assert_eq!(segment.checkpoint_version(), checkpoint);
                    prop_assert_eq!(Some(segment.tail.len()), best);
                    let mut needed = first;
                    for file in &segment.tail {
                        let (start, end) = match file.name {
                            LogName::Commit { version } => (version, version),
                            LogName::Compacted { start, end } => { prop_assert!(use_compaction); (start, end) }
                            _ => { prop_assert!(false, "{:?} in the tail", file); continue }
                        };
                        prop_assert_eq!(start, needed);
                        needed = end + 1;
                    }
                    prop_assert_eq!(needed, version + 1);
                    let sums = listing.iter().filter_map(|f| match f.name {
                        LogName::Checksum { version: v } if v <= version && v >= checkpoint.unwrap_or(0) => Some(v),
                        _ => None,
                    });
                    prop_assert_eq!(segment.checksum.map(|f| f.name.version()), sums.max());
                    prop_assert_eq!(segment.commits.len(), commits.range(..=version).count());
                }
                Err(error) => {
                    prop_assert_eq!(best, None, "{}", &error);
                    prop_assert!(error.is_corrupt() || error.is_not_found() || error.is_version_not_found());
                }
            }
        }

        #[test]
        fn readable_commits_are_those_with_a_segment(names in prop::collection::vec(short_name(), 0..24)) {
            let listing: Vec<LogFile> = names.iter().map(|name| file(name)).collect();
            let readable: Vec<u64> = readable_commits(&listing).iter().map(|f| f.name.version()).collect();
            let commits: BTreeSet<u64> = listing.iter().filter_map(|f| match f.name {
                LogName::Commit { version } => Some(version),
                _ => None,
            }).collect();
            let expected: Vec<u64> =
                commits.into_iter().filter(|v| Segment::choose(&listing, Some(*v), true).is_ok()).collect();
            prop_assert_eq!(readable, expected);
            for (version, parts, found) in incomplete_checkpoints(&listing) {
                prop_assert!(found > 0 && found < parts as usize);
                let kind = checkpoints_of(&listing).get(&version).map(|c| (c.kind, c.files.len()));
                prop_assert!(kind != Some((CheckpointKind::MultiPart, parts as usize)));
            }
        }

        #[test]
        fn segments_do_not_depend_on_order(names in prop::collection::vec(short_name(), 0..16), by in 0..16_usize) {
            let listing: Vec<LogFile> = names.iter().map(|name| file(name)).collect();
            let mut other = listing.clone();
            other.rotate_left(by.min(listing.len()));
            other.reverse();
            let outcome = |l: &[LogFile]| Segment::choose(l, None, true).map_err(|e| e.to_string());
            prop_assert_eq!(outcome(&listing), outcome(&other));
        }

        #[test]
        fn parsed_names_print_back(name in "[0-9]{18,21}(\\.(checkpoint|compacted|json|crc|parquet|[0-9]{10}|[0-9]{20})){0,5}") {
            if let Some(parsed) = LogName::parse(&name) {
                prop_assert_eq!(parsed.to_string(), name);
            }
        }

        #[test]
        fn hints_round_trip(
            version in 0..=i64::MAX as u64,
            size in any::<i64>(),
            parts in prop::option::of(any::<u32>()),
            tags in prop::option::of(prop::collection::btree_map(".*", prop::option::of(".*"), 0..3)),
            path in ".*",
            uuid: bool,
        ) {
            let hint = LastCheckpoint {
                version, size, parts, tags,
                checkpoint_schema: Some(serde_json::json!({"type": "struct", "fields": [path.as_str(), 1, null]})),
                v2_checkpoint: uuid.then(|| UuidCheckpointHint {
                    path: path.clone(),
                    sidecar_files: Some(vec![Sidecar { path, size_in_bytes: 1, modification_time: 2, tags: None }]),
                    ..Default::default()
                }),
                ..Default::default()
            };
            let printed = hint.to_json();
            let parsed = LastCheckpoint::parse(printed.as_bytes()).unwrap();
            prop_assert!(parsed.checksum.is_some());
            prop_assert_eq!(&LastCheckpoint { checksum: None, ..parsed.clone() }, &hint);
            prop_assert_eq!(parsed.to_json(), printed.clone());
            // Another version with the same checksum is refused.
            let other = printed.replacen(&format!("\"version\":{version}"), "\"version\":3", 1);
            prop_assert!(other == printed || LastCheckpoint::parse(other.as_bytes()).is_err());
        }

        #[test]
        fn checksums_round_trip(files in 0..i64::MAX, bytes in 0..i64::MAX, time in prop::option::of(any::<i64>()), text in ".*") {
            let metadata = Metadata {
                id: text.clone(), name: Some(text.clone()), description: None, format: Default::default(),
                schema_string: text.clone(), partition_columns: vec![text.clone()], created_time: time,
                configuration: BTreeMap::from([(text.clone(), text.clone())]),
            };
            let protocol = Protocol {
                min_reader_version: 3, min_writer_version: 7,
                reader_features: Some(vec![text.clone()]), writer_features: Some(vec![]),
            };
            let mut checksum = VersionChecksum::new(metadata, protocol, files, bytes);
            checksum.in_commit_timestamp_opt = time;
            checksum.set_transactions = Some(vec![Txn { app_id: text, version: files, last_updated: time }]);
            let printed = checksum.to_json().unwrap();
            prop_assert_eq!(VersionChecksum::parse(printed.as_bytes()).unwrap(), checksum);
        }

        #[test]
        fn hostile_bytes(bytes in prop::collection::vec(any::<u8>(), 0..64), cut in any::<prop::sample::Index>(), byte: u8) {
            let _ = LastCheckpoint::parse(&bytes);
            let _ = VersionChecksum::parse(&bytes);
            let _ = LogName::parse(&String::from_utf8_lossy(&bytes));
            // A valid hint with one byte changed gets further in the parser.
            let mut hint = LastCheckpoint { version: 5, size: 1, ..Default::default() }.to_json().into_bytes();
            let at = cut.index(hint.len());
            hint[at] = byte;
            let _ = LastCheckpoint::parse(&hint);
            let _ = LastCheckpoint::parse(&hint[..at]);
        }
    }

    #[test]
    fn long_paths_to_empty_objects_are_refused() {
        let hint = |key: usize, elements: usize| {
            let (key, elements) = ("k".repeat(key), vec!["{}"; elements].join(","));
            LastCheckpoint::parse(format!(r#"{{"version":1,"size":1,"{key}":[{elements}]}}"#).as_bytes()).ok()
        };
        assert!(hint(10, 1000).is_some());
        assert_eq!(hint(100_000, 30_000), None);
        assert_eq!(hint(2_000_000, 1), None);
    }

    #[test]
    fn deep_nesting_is_refused() {
        for open in ["[", "{\"a\":"] {
            let text = format!(r#"{{"version":1,"size":1,"x":{}"#, open.repeat(100_000));
            assert_eq!(LastCheckpoint::parse(text.as_bytes()).ok(), None);
            let close = if open == "[" { "]" } else { "}" };
            let text = format!(r#"{{"version":1,"size":1,"x":{}1{}}}"#, open.repeat(5_000), close.repeat(5_000));
            assert_eq!(LastCheckpoint::parse(text.as_bytes()).ok(), None);
            assert!(VersionChecksum::parse(text.as_bytes()).is_err());
        }
    }
}

// --- inconsistent listings

#[test]
fn a_second_listing_fills_gaps() {
    let files = |names: &[&str]| names.iter().filter_map(|name| LogFile::parse(name, 1, 0)).collect::<Vec<_>>();
    let commits = |versions: &[u64]| versions.iter().map(|v| commit_name(*v)).collect::<Vec<_>>();
    let listed = |versions: &[u64]| files(&commits(versions).iter().map(String::as_str).collect::<Vec<_>>());
    for (versions, expected) in [
        (&[][..], None),
        (&[7], None),
        (&[7, 8, 9], None),
        (&[7, 9], Some(Gap { first: 8, newest: 9 })),
        (&[7, 10, 11, 14], Some(Gap { first: 8, newest: 14 })),
    ] {
        assert_eq!(gap(&listed(versions)), expected, "{versions:?}");
    }
    // Any files other than commits may be missing.
    assert_eq!(gap(&files(&[&commit_name(3), &checksum_name(9), &checkpoint_name(20)])), None);

    // Versions after the newest of the first listing are ignored.
    assert_eq!(fill_gap(listed(&[7, 9]), listed(&[8, 9, 11]), 9), listed(&[7, 8, 9]));
    assert_eq!(fill_gap(listed(&[7, 9]), listed(&[9]), 9), listed(&[7, 9]), "a missing commit stays missing");
}
