//! The contract held against servers that somebody has started: `DELTIC_TEST_STORES` is a JSON list of
//! `{"uri": …, "options": {…}}`, each of an empty table. `tests/interop/test_servers.py` starts real ones.

use std::collections::HashMap;

use deltic_table::storage::Storage;

#[derive(serde::Deserialize)]
struct Store {
    uri: String,
    options: HashMap<String, String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_conform() {
    let Ok(stores) = std::env::var("DELTIC_TEST_STORES") else { return };
    let stores: Vec<Store> = serde_json::from_str(&stores).unwrap();
    assert!(!stores.is_empty());
    for Store { uri, options } in stores {
        let open = |name: &str| Storage::open(&format!("{uri}/{name}"), &options).unwrap();
        super::missing(&open("missing")).await;
        println!("missing {uri}");
        super::strange_keys(&open("some tables/t%25")).await;
        println!("strange keys {uri}");
        super::listing(&open("listing")).await;
        println!("listing {uri}");
        super::reading(&open("reading")).await;
        println!("reading {uri}");
        super::writing(&open("writing")).await;
        println!("writing {uri}");
        super::escaping(&open("escaping")).await;
        super::race(open("race")).await;
        println!("race {uri}");
        println!("conforms: {uri}");
    }
}
