//! Files that a log names outside of the table's own store.
//!
//! A malicious writer of a log could direct its readers to any address, also in their own network, and collect their
//! credentials. So no such file is read unless the caller allows it, and credentials are never sent to a server that only
//! the log names.
//!
//! Proved by the tests below and those in `tests/rust/table/storage/foreign.rs`. PROTOCOL.md: "Add File and Remove File"
//! (path).

use deltic_protocol::error::mask_urls;
use object_store::azure::AzureConfigKey;

use super::Storage;
use crate::cloud::remote::Remote;
use crate::config::names::ALLOW_FOREIGN_PATHS;
use crate::error::{Error, Result};
use crate::location::{Location, Scheme};

/// How many foreign buckets are kept open; a log could name any number of them.
const MAX_FOREIGN_STORES: usize = 64;

impl Storage {
    /// # Errors
    /// `Unsupported` unless the caller allows it.
    pub(crate) fn allow_foreign(&self, location: &str) -> Result<()> {
        if self.inner.options.allow_foreign_paths {
            return Ok(());
        }
        Err(Error::unsupported(
            "path outside of the table's store",
            format!(
                "the table's log names a file {}, which is not the store that the table is in; deltic follows such a \
                 path only with the storage option {ALLOW_FOREIGN_PATHS} = 'true': set it if you trust whoever writes to \
                 the table (a shallow clone has such paths)",
                mask_urls(location.to_owned())
            ),
        ))
    }

    /// The Azure account of a location: its own, or that of the settings.
    pub(super) fn account(&self, location: &Location) -> Option<String> {
        let settings = || self.inner.options.settings::<AzureConfigKey>("AZURE_").ok();
        let named = location.container().and_then(|(account, _)| account);
        named.or_else(|| Some(settings()?.into_iter().rfind(|(key, _)| *key == AzureConfigKey::AccountName)?.1))
    }

    /// The Azure account of a location, if it is on Azure's public servers: the settings name no other server.
    pub(super) fn public_account(&self, location: &Location) -> Option<String> {
        let settings = self.inner.options.settings::<AzureConfigKey>("AZURE_").ok()?;
        let is_elsewhere = |(key, _): &(AzureConfigKey, String)| {
            matches!(key, AzureConfigKey::Endpoint | AzureConfigKey::UseEmulator | AzureConfigKey::UseFabricEndpoint)
        };
        if settings.iter().any(is_elsewhere) { None } else { self.account(location) }
    }

    /// Whether a location is in the same Azure container, which can be named in several ways.
    pub(crate) fn is_same_container(&self, there: &Location) -> bool {
        let ours = &self.inner.location;
        match (ours.container(), there.container()) {
            (Some((_, ours_name)), Some((_, name))) => {
                ours_name == name && self.account(ours).is_some_and(|account| self.account(there) == Some(account))
            }
            _ => false,
        }
    }

    pub(crate) fn foreign(&self, there: &Location) -> Remote {
        let inner = &self.inner;
        // Credentials are sent only to the server of the table and to those that the caller's settings name.
        let is_known_server = match (there.server(), there.scheme) {
            (None, _) => true,
            (Some(_), Scheme::Azure) => {
                self.account(&inner.location).is_some_and(|account| self.account(there) == Some(account))
            }
            (server, _) => server == inner.location.server(),
        };
        let open = || Remote::new(there, inner.options.for_foreign(!is_known_server), inner.tally.clone());
        // This does not wait: a lock that was held when the process forked stays held in the child.
        let Ok(mut stores) = inner.foreign_stores.try_lock() else { return open() };
        if stores.len() >= MAX_FOREIGN_STORES && !stores.contains_key(&there.base) {
            stores.clear();
        }
        stores.entry(there.base.clone()).or_insert_with(open).clone()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::location::Target;

    /// Whether a file that a log names is asked for without credentials; `None` if it is in the table's own store.
    fn is_asked_anonymously(table: &Storage, path: &str) -> Option<bool> {
        match table.inner.location.resolve(path).unwrap() {
            Target::Elsewhere(there) => Some(table.foreign(&there).is_anonymous()),
            Target::Here(_) => None,
            Target::Local(_) => panic!("{path} is not a local file"),
        }
    }

    #[test]
    fn other_accounts_of_azure_get_no_credentials() {
        for credential in [
            ("azure_storage_account_key", "c2VzYW1l"),
            ("azure_storage_sas_token", "sv=2024-11-04&sr=c&sp=rl&sig=c2VzYW1l"),
            ("azure_storage_token", "bearer"),
        ] {
            let given = [("allow_foreign_paths", "true"), ("azure_storage_account_name", "account"), credential];
            let options = given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            only_the_tables_account_is_sent_credentials(credential.0, &options);
        }
    }

    fn only_the_tables_account_is_sent_credentials(credential: &str, options: &HashMap<String, String>) {
        let table_of = |uri: &str| Storage::open(uri, options).unwrap();
        for uri in ["abfss://container@account.dfs.core.windows.net/t", "az://container/t", "s3://bucket/t"] {
            let table = table_of(uri);
            for path in [
                "abfss://other@account.dfs.core.windows.net/x",
                "abfss://other@account.blob.core.windows.net/x",
                "https://account.blob.core.windows.net/other/x",
                "az://other/x",
            ] {
                assert_eq!(is_asked_anonymously(&table, path), Some(false), "{credential}: {uri}: {path}");
            }
            for path in [
                "abfss://container@account2.dfs.core.windows.net/x",
                "abfss://other@account2.blob.core.windows.net/x",
                "abfss://other@account.dfs.fabric.microsoft.com/x",
                "https://account2.blob.core.windows.net/container/x",
                "https://account.dfs.fabric.microsoft.com/container/x",
                "abfss://container@account.example.com/x",
                "http://account.example.com/x",
            ] {
                match table.inner.location.resolve(path) {
                    Ok(_) => {
                        assert_eq!(is_asked_anonymously(&table, path), Some(true), "{credential}: {uri}: {path}");
                    }
                    Err(error) => assert!(path.contains("example.com"), "{uri}: {path}: {error}"),
                }
            }
        }
        // Nor does a table that has another account than the settings name send what they have to theirs.
        let table = table_of("abfss://container@account2.dfs.core.windows.net/t");
        for (path, is_anonymous) in [
            ("abfss://other@account2.dfs.core.windows.net/x", false),
            ("abfss://other@account.dfs.core.windows.net/x", true),
        ] {
            assert_eq!(is_asked_anonymously(&table, path), Some(is_anonymous), "{credential}: {path}");
        }
    }
}
