//! The names of options: those of deltic, those of other clients with the same meaning, and advice for the others.
//!
//! An unknown key is refused: a misspelled credential would otherwise lead to "access denied". A key that
//! another client has and deltic does not is refused with the alternative in deltic.
//!
//! Proved by `misspelled_options_are_refused` and `options_of_other_clients` in the storage tests.

use object_store::ClientConfigKey;
use object_store::aws::AmazonS3ConfigKey;
use object_store::azure::AzureConfigKey;
use object_store::gcp::GoogleConfigKey;

use super::settings::Form;
use crate::error::Error;

/// Whether writes to a local disk wait until they are durable: `full` (default) or `none`.
pub(crate) const DURABILITY: &str = "deltic.durability";
/// How commits to a table on S3 exclude each other: by `conditional` puts (default), or through `dynamodb`.
pub(crate) const LOG_STORE: &str = "deltic.s3.log_store";
/// The prefix of the options of the DynamoDB table.
pub(crate) const DYNAMODB: &str = "deltic.s3.dynamodb.";
/// Whether a log may name files outside of the table's own store.
pub(crate) const ALLOW_FOREIGN_PATHS: &str = "allow_foreign_paths";
/// A profile of Amazon's shared files, and the paths of these files.
pub(crate) const PROFILE: &str = "aws_profile";
pub(crate) const CREDENTIALS_FILE: &str = "aws_shared_credentials_file";
pub(crate) const CONFIG_FILE: &str = "aws_config_file";
/// How often and how long failed requests are retried, by the names of delta-rs.
pub(crate) const MAX_RETRIES: &str = "max_retries";
pub(crate) const RETRY_TIMEOUT: &str = "retry_timeout";
pub(crate) const INIT_BACKOFF: &str = "backoff_config.init_backoff";
pub(crate) const MAX_BACKOFF: &str = "backoff_config.max_backoff";
pub(crate) const BACKOFF_BASE: &str = "backoff_config.base";

/// Names of other Delta clients with the same meaning.
const SAME: &[(&str, &str)] = &[
    ("aws_s3_locking_provider", LOG_STORE),
    ("delta_dynamo_table_name", "deltic.s3.dynamodb.table"),
    ("aws_region_dynamodb", "deltic.s3.dynamodb.region"),
    ("aws_endpoint_url_dynamodb", "deltic.s3.dynamodb.endpoint"),
    ("aws_access_key_id_dynamodb", "deltic.s3.dynamodb.access_key_id"),
    ("aws_secret_access_key_dynamodb", "deltic.s3.dynamodb.secret_access_key"),
    ("aws_session_token_dynamodb", "deltic.s3.dynamodb.session_token"),
    ("profile", PROFILE),
];

/// Options of other clients that need no action: commits to S3 are always safe, whether unsafe ones
/// are allowed or not, and deltic does not create the DynamoDB table.
const WITHOUT_EFFECT: &[&str] = &[
    "aws_s3_allow_unsafe_rename",
    "delta_dynamo_billing_mode",
    "delta_dynamo_read_capacity_units",
    "delta_dynamo_write_capacity_units",
    "delta_dynamo_max_elapsed_request_time",
    "delta_dynamo_update_item_max_elapsed_time",
    "delta_dynamo_refresh_table_existence_check_interval",
];

/// Advice for options of other clients.
const ANSWERS: &[(&str, &str)] = &[
    (
        "allow_unsafe_rename",
        "deltic never commits by a rename that could overwrite another commit; leave the option out",
    ),
    (
        "mount_allow_unsafe_rename",
        "deltic never commits by a rename that could overwrite another commit; leave the option out",
    ),
    (
        "dynamo_lock_table_name",
        "it belongs to the lock client of old delta-rs releases; deltic commits through DynamoDB in the format of \
         delta-spark: set deltic.s3.log_store = 'dynamodb' and deltic.s3.dynamodb.table",
    ),
    ("key", "give aws_access_key_id (S3) or azure_storage_account_key (Azure)"),
    ("secret", "give aws_secret_access_key (S3) or azure_storage_client_secret (Azure)"),
    ("anon", "for a public bucket set aws_skip_signature, azure_skip_signature or google_skip_signature to 'true'"),
    (
        "anonymous",
        "for a public bucket set aws_skip_signature, azure_skip_signature or google_skip_signature to 'true'",
    ),
    (
        "connection_string",
        "give its parts: azure_storage_account_name, and azure_storage_account_key or azure_storage_sas_token",
    ),
    (
        "azure_storage_connection_string",
        "give its parts: azure_storage_account_name, and azure_storage_account_key or azure_storage_sas_token",
    ),
    ("client_kwargs", "give its keys as options: endpoint_url as aws_endpoint, region_name as aws_region"),
    ("config_kwargs", "give its keys as options: see docs/storage.md"),
    ("region_name", "give aws_region"),
    ("use_ssl", "an endpoint that begins with http:// is used when aws_allow_http is 'true'"),
    ("verify", "set allow_invalid_certificates to 'true' to trust any certificate"),
    ("project", "the project follows from the credentials; leave it out"),
    ("google_project", "the project follows from the credentials; leave it out"),
    (
        "credential_process",
        "deltic does not run programs for credentials; run `aws configure export-credentials` and pass what it prints",
    ),
    (
        "assume_role",
        "deltic does not assume roles; run `aws sts assume-role` and pass the keys and the token it prints",
    ),
    ("aws_iam_role_arn", "deltic does not assume roles; run `aws sts assume-role` and pass the keys and the token"),
    (
        "aws_iam_role_session_name",
        "deltic does not assume roles; run `aws sts assume-role` and pass the keys and the token",
    ),
    (
        "aws_s3_assume_role_arn",
        "deltic does not assume roles; run `aws sts assume-role` and pass the keys and the token",
    ),
    ("aws_s3_force_path_style", "path style is what deltic uses unless aws_virtual_hosted_style_request is 'true'"),
    ("aws_force_path_style", "path style is what deltic uses unless aws_virtual_hosted_style_request is 'true'"),
];

/// Keys to suggest for an unknown one; the crate has no list of its keys.
const SUGGESTIONS: &[&str] = &[
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
    "aws_region",
    "aws_default_region",
    "aws_endpoint",
    "aws_endpoint_url",
    "aws_allow_http",
    "aws_virtual_hosted_style_request",
    "aws_conditional_put",
    "aws_copy_if_not_exists",
    "aws_skip_signature",
    "aws_role_arn",
    "aws_server_side_encryption",
    "aws_sse_kms_key_id",
    PROFILE,
    CREDENTIALS_FILE,
    CONFIG_FILE,
    "azure_storage_account_name",
    "azure_storage_account_key",
    "azure_storage_sas_token",
    "azure_storage_client_id",
    "azure_storage_client_secret",
    "azure_storage_tenant_id",
    "azure_storage_endpoint",
    "azure_storage_use_emulator",
    "azure_use_azure_cli",
    "google_service_account",
    "google_service_account_key",
    "google_application_credentials",
    "google_bearer_token",
    "google_skip_signature",
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "timeout",
    "proxy_url",
    "user_agent",
    MAX_RETRIES,
    RETRY_TIMEOUT,
    INIT_BACKOFF,
    MAX_BACKOFF,
    BACKOFF_BASE,
    ALLOW_FOREIGN_PATHS,
    DURABILITY,
    LOG_STORE,
    "deltic.s3.dynamodb.table",
    "deltic.s3.dynamodb.region",
    "deltic.s3.dynamodb.endpoint",
    "deltic.s3.dynamodb.access_key_id",
    "deltic.s3.dynamodb.secret_access_key",
    "deltic.s3.dynamodb.session_token",
];

/// deltic's name of an option.
pub(crate) fn canonical(key: &str) -> &str {
    SAME.iter().find(|(name, _)| *name == key).map_or(key, |(_, ours)| ours)
}

/// Whether an option is accepted without effect.
pub(crate) fn is_without_effect(key: &str) -> bool {
    WITHOUT_EFFECT.contains(&key)
}

/// The form of the value of an option of deltic's own.
pub(crate) fn own_form(key: &str) -> Option<Form> {
    Some(match key {
        DURABILITY | LOG_STORE | PROFILE | CREDENTIALS_FILE | CONFIG_FILE => Form::Line,
        ALLOW_FOREIGN_PATHS => Form::Flag,
        MAX_RETRIES => Form::Count(0..=10_000),
        RETRY_TIMEOUT | INIT_BACKOFF | MAX_BACKOFF => Form::Duration,
        BACKOFF_BASE => Form::Decimal,
        "deltic.s3.dynamodb.region" => Form::Label,
        "deltic.s3.dynamodb.endpoint" => Form::Url,
        key if key.starts_with(DYNAMODB) && SUGGESTIONS.contains(&key) => Form::Ascii,
        key if is_without_effect(key) => Form::Line,
        _ => return None,
    })
}

pub(crate) fn is_known(key: &str) -> bool {
    own_form(key).is_some()
        || key.parse::<AmazonS3ConfigKey>().is_ok()
        || key.parse::<AzureConfigKey>().is_ok()
        || key.parse::<GoogleConfigKey>().is_ok()
        || key.parse::<ClientConfigKey>().is_ok()
}

/// The error for an unknown option.
pub(crate) fn unknown(key: &str) -> Error {
    // A key may be anything, even a misplaced secret.
    let shown: String = key.chars().take(64).map(|c| if c.is_control() { '?' } else { c }).collect();
    if let Some((_, answer)) = ANSWERS.iter().find(|(name, _)| *name == key) {
        return Error::invalid(format!("deltic has no storage option '{shown}'; {answer}"));
    }
    let near = nearest(key);
    let advice = match near.is_empty() {
        true => "docs/storage.md lists those that there are".to_owned(),
        false => format!("did you mean {}?", near.join(" or ")),
    };
    Error::invalid(format!("no storage backend has an option '{shown}'; {advice}"))
}

/// At most three known keys within a few edits, with or without the prefix of their store.
fn nearest(key: &str) -> Vec<String> {
    // The time is quadratic in the length; no real key is longer.
    let key: String = key.chars().take(64).collect();
    let bare = |name: &'static str| {
        let prefixes = ["deltic.s3.dynamodb.", "deltic.s3.", "deltic.", "azure_storage_", "azure_", "aws_", "google_"];
        prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name)
    };
    let distance = |name: &'static str| edits(&key, name).min(edits(&key, bare(name)) + 1);
    let most = key.chars().count() / 4 + 1;
    let mut near: Vec<(usize, &str)> =
        SUGGESTIONS.iter().map(|name| (distance(name), *name)).filter(|(distance, _)| *distance <= most).collect();
    near.sort_unstable();
    let best = near.first().map_or(0, |(distance, _)| *distance);
    near.into_iter()
        .filter(|(distance, _)| *distance <= best + 1)
        .take(3)
        .map(|(_, name)| format!("'{name}'"))
        .collect()
}

/// Levenshtein distance.
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (slot, y) in row.iter_mut().skip(1).zip(b.chars()) {
            let cost = (diagonal + usize::from(x != y)).min(left + 1).min(*slot + 1);
            diagonal = *slot;
            *slot = cost;
            left = cost;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}
