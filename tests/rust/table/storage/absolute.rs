//! Different names of files and roots: absolute URIs, equivalent schemes, symbolic links.

use super::*;

/// Options, location, reference and its absolute URI; `None` if other clients would resolve it differently.
const URIS: &[(&str, &str, &str, Option<&str>)] = &[
    ("", "/a b/t", "x%y", Some("file:/a%20b/t/x%25y")),
    ("", "s3://b/t", "x y", Some("s3://b/t/x%20y")),
    ("", "s3a://b/t u", "x", Some("s3a://b/t%20u/x")),
    ("", "s3a://b/t", "s3://b/v/x", Some("s3://b/v/x")),
    ("", "s3://b/t", "s3a://b/v/x", Some("s3a://b/v/x")),
    ("", "s3://b/t", "s3a://c/v/x", Some("s3a://c/v/x")),
    ("", "gs://b", "x", Some("gs://b/x")),
    ("", "abfss://c@acc.dfs.core.windows.net/t", "x", Some("abfss://c@acc.dfs.core.windows.net/t/x")),
    ("", "https://acc.blob.core.windows.net/c/t", "x", Some("https://acc.blob.core.windows.net/c/t/x")),
    ("", "az://c/t", "x", None),
    ("azure_storage_account_name=acc", "az://c/t", "x", Some("abfss://c@acc.dfs.core.windows.net/t/x")),
    ("azure_storage_account_name=acc", "abfss://c/t", "az://d/x", Some("abfss://d@acc.dfs.core.windows.net/x")),
    ("azure_storage_account_name=acc,azure_storage_endpoint=https://e.example.com", "az://c/t", "x", None),
    ("azure_storage_use_emulator=true", "az://c/t", "x", None),
];

fn given(text: &str) -> HashMap<String, String> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[test]
fn absolute_uris_are_portable() {
    for (settings, location, reference, expected) in URIS {
        let uri = Storage::open(location, &given(settings)).unwrap().absolute_uri(reference);
        match expected {
            Some(expected) => assert_eq!(&uri.unwrap(), expected),
            None => {
                let error = uri.unwrap_err();
                assert!(matches!(error.kind(), Kind::Unsupported { .. }), "{error}");
                assert!(error.to_string().contains("has no Azure account"), "{error}");
            }
        }
    }
}

/// Two locations, and whether one is inside the other.
const ROOTS: &[(&str, &str, bool)] = &[
    ("/a/t", "/a/t/b", true),
    ("/a/t", "/a/tb", false),
    ("/a/t*", "/a/t*/b", true),
    ("s3a://b/t", "s3://b/t/sub", true),
    ("s3://b", "s3a://b/t", true),
    ("s3://b/t", "s3://b/t2", false),
    ("s3://b/t", "s3://c/t", false),
    ("s3://b/t", "gs://b/t", false),
    ("az://c/t", "abfss://c@acc.dfs.core.windows.net/t/sub", true),
    ("https://acc.blob.core.windows.net/c/t", "az://c/t", true),
    ("abfss://c@acc.dfs.core.windows.net/t", "abfss://c@other.dfs.core.windows.net/t", false),
    ("abfss://c@acc.dfs.core.windows.net/t", "https://acc.blob.core.windows.net/d/t", false),
];

#[tokio::test]
async fn roots_inside_of_each_other() {
    let settings = given("azure_storage_account_name=acc");
    for (one, two, expected) in ROOTS {
        let [one, two] = [one, two]
            .map(|uri| Storage::open(&uri.replace('*', "%2A").replace("/a/", "file:///a/"), &settings).unwrap());
        assert_eq!(one.overlaps(&two).await.unwrap(), *expected, "{one:?} and {two:?}");
        assert_eq!(two.overlaps(&one).await.unwrap(), *expected, "{two:?} and {one:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(path("t")).unwrap();
    std::os::unix::fs::symlink(path("t"), path("link")).unwrap();
    let open = |name: &str| open(path(name).to_str().unwrap());
    assert!(open("t").overlaps(&open("link/not/yet")).await.unwrap());
    assert!(open("link").overlaps(&open("t")).await.unwrap());
    assert!(!open("link").overlaps(&open("u")).await.unwrap());
    assert_eq!(
        open("u").real_path(path("link/a/x").to_str().unwrap()).await.unwrap(),
        open("t").real_path("a/x").await.unwrap()
    );
}

#[test]
fn a_container_has_several_names() {
    let storage = Storage::open("az://c/t", &given("azure_storage_account_name=acc")).unwrap();
    let below = |reference: &str| storage.below_root(reference);
    assert_eq!(below("abfss://c@acc.dfs.core.windows.net/t/p/x").as_deref(), Some("p/x"));
    assert_eq!(below("https://acc.blob.core.windows.net/c/t/x").as_deref(), Some("x"));
    assert_eq!(below("abfss://c@other.dfs.core.windows.net/t/x"), None);
}
