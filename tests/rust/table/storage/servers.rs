//! The contract on running servers. `DELTIC_TEST_STORES` is a JSON list of `{"uri": …, "options": {…}}`, each an empty
//! location. `tests/interop/test_servers.py` starts real ones.

use std::collections::HashMap;

use deltic_store::{Storage, conformance};
use deltic_table::committers::DynamoDbCommitter;
use deltic_table::log::LogSource;

#[derive(serde::Deserialize)]
struct Store {
    uri: String,
    options: HashMap<String, String>,
    /// Characters that keys cannot contain.
    #[serde(default)]
    without: String,
    /// Whether files cannot be deleted.
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
        conformance::check_reads(&open("reading")).await;
        conformance::check_large_puts(&open("large")).await;
        println!("takes parts: {uri}");
        if keeps {
            continue;
        }
        conformance::check(&open("some tables/t%25"), &without).await;
        match DynamoDbCommitter::of(&LogSource::of(&open("race"))) {
            // Only the committer may put commits.
            Some(_) => super::dynamodb::races(&open("race")).await,
            None => conformance::check_races(&open("race")).await,
        }
        println!("conforms: {uri}");
    }
}
