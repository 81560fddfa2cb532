//! The contract held against servers that somebody has started: `DELTIC_TEST_STORES` is a JSON list of
//! `{"uri": …, "options": {…}}`, each an empty place. `tests/interop/test_servers.py` starts real ones.

use std::collections::HashMap;

use deltic_table::storage::Storage;

#[derive(serde::Deserialize)]
struct Store {
    uri: String,
    options: HashMap<String, String>,
    /// Characters that its keys cannot have.
    #[serde(default)]
    without: String,
    /// Whether files stay for ever.
    #[serde(default)]
    keeps: bool,
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_conform() {
    let Ok(stores) = std::env::var("DELTIC_TEST_STORES") else { return };
    let stores: Vec<Store> = serde_json::from_str(&stores).unwrap();
    assert!(!stores.is_empty());
    for Store { uri, options, without, keeps } in stores {
        let open = |name: &str| Storage::open(&format!("{uri}/{name}"), &options).unwrap();
        super::reading(&open("reading")).await;
        super::writing_large(&open("large"), &vec![7; 3 << 20].into()).await;
        println!("takes parts: {uri}");
        if keeps {
            continue;
        }
        super::missing(&open("missing")).await;
        super::strange_keys(&open("some tables/t%25"), &without).await;
        super::listing(&open("listing")).await;
        super::writing(&open("writing")).await;
        super::escaping(&open("escaping")).await;
        super::race(open("race")).await;
        println!("conforms: {uri}");
    }
}
