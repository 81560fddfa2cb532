//! Profiles of Amazon's shared files, `~/.aws/credentials` and `~/.aws/config`.
//!
//! Static keys, a session token, region and endpoint are used. Credentials that would have to be fetched (by a program,
//! from SSO, by assuming a role) are refused, with the command that prints keys to pass instead. A profile is chosen by the
//! option `aws_profile` or by `AWS_PROFILE`; otherwise it is `default`, if that exists.
//!
//! Proved by the tests below, and by `a_profile_signs` in the storage tests.

use std::path::{Path, PathBuf};

use super::names::{CONFIG_FILE, CREDENTIALS_FILE, PROFILE};
use super::options::Options;
use super::settings::{Form, check, variable};
use crate::error::{Error, Result};

/// The longest file that is read.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Settings for credentials that deltic does not support.
const FETCHED: &[&str] = &[
    "role_arn",
    "source_profile",
    "credential_source",
    "web_identity_token_file",
    "sso_session",
    "sso_start_url",
    "sso_account_id",
    "login_session",
];

/// The settings of a profile that deltic uses.
#[derive(Default)]
pub(crate) struct Profile {
    pub(crate) name: String,
    pub(crate) keys: Option<Keys>,
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
    /// A setting by which keys would have to be fetched.
    fetched_by: Option<String>,
}

pub(crate) struct Keys {
    pub(crate) id: String,
    pub(crate) secret: String,
    pub(crate) token: Option<String>,
}

impl Profile {
    /// The chosen profile, or the default one.
    ///
    /// # Errors
    /// `Invalid` if the chosen profile does not exist, or if a file cannot be read or parsed.
    pub(crate) fn load(options: &Options) -> Result<Option<Self>> {
        let asked = options.own(PROFILE).map(str::to_owned).or_else(|| variable("AWS_PROFILE"));
        let asked = asked.or_else(|| variable("AWS_DEFAULT_PROFILE"));
        let file = |option, variable_name, name: &str| {
            let named = options.own(option).map(str::to_owned).or_else(|| variable(variable_name)).map(PathBuf::from);
            named.or_else(|| Some(std::env::home_dir()?.join(".aws").join(name)))
        };
        let files = [
            (file(CREDENTIALS_FILE, "AWS_SHARED_CREDENTIALS_FILE", "credentials"), false),
            (file(CONFIG_FILE, "AWS_CONFIG_FILE", "config"), true),
        ];
        let name = asked.clone().unwrap_or_else(|| "default".to_owned());
        let (mut found, mut there, mut looked) = (Vec::new(), Vec::new(), Vec::new());
        for (path, is_config) in files {
            let Some(path) = path else { continue };
            looked.push(path.display().to_string());
            let Some(text) = read(&path)? else { continue };
            for (section, settings) in parse(&text, is_config) {
                if section == name {
                    found.push(settings);
                }
                there.push(section);
            }
        }
        if !found.is_empty() {
            return Self::of(name, found.concat()).map(Some);
        }
        match asked {
            None => Ok(None),
            Some(_) => {
                there.sort_unstable();
                there.dedup();
                let others = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
                Err(Error::invalid(format!(
                    "there is no profile '{name}' in {} (profiles there: {others}); check aws_profile or AWS_PROFILE",
                    looked.join(" and ")
                )))
            }
        }
    }

    /// The credentials file takes precedence over the configuration.
    fn of(name: String, settings: Vec<(String, String)>) -> Result<Self> {
        let get = |key: &str, form: Form| match settings.iter().find(|(k, v)| k == key && !v.is_empty()) {
            Some((_, value)) => check(&format!("{key} (profile {name})"), value, &[form]),
            None => Ok(None),
        };
        let (id, secret) = (get("aws_access_key_id", Form::Ascii)?, get("aws_secret_access_key", Form::Ascii)?);
        let token = get("aws_session_token", Form::Ascii)?;
        let has = |key: &&&str| settings.iter().any(|(k, _)| k == **key);
        let keys = match (id, secret) {
            (Some(id), Some(secret)) => Some(Keys { id, secret, token }),
            (None, None) => None,
            _ => {
                return Err(Error::invalid(format!(
                    "the profile '{name}' has only one of aws_access_key_id and aws_secret_access_key"
                )));
            }
        };
        let fetched_by = FETCHED.iter().find(has).or_else(|| ["credential_process"].iter().find(has));
        // As in Amazon's clients: a role takes precedence over keys, and keys over a program.
        let fetched_by =
            fetched_by.filter(|by| keys.is_none() || **by != "credential_process").map(|by| (*by).to_owned());
        let (region, endpoint) = (get("region", Form::Label)?, get("endpoint_url", Form::Url)?);
        Ok(Self { name, keys, region, endpoint, fetched_by })
    }

    /// Its keys, if it has any.
    ///
    /// # Errors
    /// `Unsupported` if they would have to be fetched in a way that deltic does not support.
    pub(crate) fn take_keys(&mut self) -> Result<Option<Keys>> {
        let Some(by) = &self.fetched_by else { return Ok(self.keys.take()) };
        let name = &self.name;
        Err(Error::unsupported(
            "credentials of a profile",
            format!(
                "the profile '{name}' gets its credentials by {by}, which deltic does not do; run `eval \"$(aws configure \
                 export-credentials --profile {name} --format env)\"` first, or pass aws_access_key_id, \
                 aws_secret_access_key and aws_session_token"
            ),
        ))
    }
}

/// The text of a file; `None` if there is none.
fn read(path: &Path) -> Result<Option<String>> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => metadata,
        _ => return Ok(None),
    };
    let failed = |why: &str| Error::invalid(format!("{} {why}; it has profiles for Amazon's clients", path.display()));
    if metadata.len() > MAX_FILE_BYTES {
        return Err(failed("is too long"));
    }
    let bytes = std::fs::read(path).map_err(|e| failed("cannot be read").caused_by(e))?;
    String::from_utf8(bytes).map(Some).map_err(|_| failed("is not UTF-8"))
}

/// Sections by the name of their profile, in order. In the configuration they are `[profile name]`, and `[default]`.
fn parse(text: &str, is_config: bool) -> Vec<(String, Vec<(String, String)>)> {
    let mut sections: Vec<(String, Vec<(String, String)>)> = Vec::new();
    let mut is_profile = false;
    for line in text.lines() {
        let is_nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[').filter(|_| !is_nested) {
            let section = rest.split(']').next().unwrap_or_default().trim();
            let words = section.split_once(char::is_whitespace);
            let name = match (is_config, words) {
                (true, Some(("profile", name))) => Some(name.trim().trim_matches(['"', '\''])),
                (true, None) if section == "default" => Some(section),
                (true, _) => None,
                (false, _) => Some(section),
            };
            is_profile = name.is_some();
            if let Some(name) = name {
                sections.push((name.to_owned(), Vec::new()));
            }
        } else if let (Some((key, value)), Some((_, settings))) = (line.split_once('='), sections.last_mut())
            && is_profile
            && !is_nested
        {
            let value = value.split(" #").next().unwrap_or_default();
            settings.push((key.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    sections
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn load(profile: Option<&str>, credentials: &str, config: &str) -> Result<Option<Profile>> {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(path("credentials"), credentials).unwrap();
        std::fs::write(path("config"), config).unwrap();
        let mut given = HashMap::from([
            (CREDENTIALS_FILE.to_owned(), path("credentials")),
            (CONFIG_FILE.to_owned(), path("config")),
        ]);
        given.extend(profile.map(|name| (PROFILE.to_owned(), name.to_owned())));
        Profile::load(&Options::parse(&given).unwrap())
    }

    #[test]
    fn both_files_are_read_and_the_one_with_credentials_goes_before() {
        let credentials = "# keys\n[default]\naws_access_key_id = A\naws_secret_access_key=B\n\n[work]\r\n\
                           aws_access_key_id = W # of work\naws_secret_access_key = a+/=b=\naws_session_token = T\n";
        let config = "[default]\nregion = eu-north-1\ns3 =\n  endpoint_url = http://nested\n[profile work]\n\
                      endpoint_url = https://there:9000/\naws_access_key_id = OLD\naws_secret_access_key = OLD\n\
                      [services x]\nregion = no\n[sso-session work]\nsso_start_url = no\n";
        let mut work = load(Some("work"), credentials, config).unwrap().unwrap();
        let keys = work.take_keys().unwrap().unwrap();
        assert_eq!((keys.id.as_str(), keys.secret.as_str(), keys.token.as_deref()), ("W", "a+/=b=", Some("T")));
        assert_eq!((work.region, work.endpoint.as_deref()), (None, Some("https://there:9000")));
        let other = load(Some("default"), credentials, config).unwrap().unwrap();
        assert_eq!((other.region.as_deref(), other.endpoint), (Some("eu-north-1"), None));
    }

    #[test]
    fn what_deltic_does_not_do_is_refused_by_name() {
        for (setting, expected) in [
            ("credential_process = /bin/x SECRET", "credential_process"),
            ("role_arn = arn:SECRET\nsource_profile = a", "role_arn"),
            ("sso_session = SECRET", "sso_session"),
        ] {
            let config = format!("[profile p]\n{setting}\n");
            let error = load(Some("p"), "", &config).unwrap().unwrap().take_keys().err().unwrap().to_string();
            assert!(error.contains(expected) && error.contains("export-credentials --profile p"), "{error}");
            assert!(!error.contains("SECRET"), "{error}");
        }
        let error = load(Some("p"), "[q]\naws_access_key_id = SECRET", "[default]").err().unwrap().to_string();
        assert!(
            error.contains("no profile 'p'") && error.contains("default, q") && !error.contains("SECRET"),
            "{error}"
        );
        let error = load(Some("q"), "[q]\naws_access_key_id = SECRET", "").err().unwrap().to_string();
        assert!(error.contains("only one of") && !error.contains("SECRET"), "{error}");
        let error = load(Some("q"), "[q]\naws_access_key_id = SE\u{1}CRET", "").err().unwrap().to_string();
        assert!(error.contains("control character") && !error.contains("CRET"), "{error}");
    }
}
