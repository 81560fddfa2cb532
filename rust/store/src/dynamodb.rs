//! The DynamoDB table by which writers of a bucket exclude each other, in the format of delta-spark's `S3DynamoDBLogStore`.
//!
//! There is an item for each commit: `tablePath` and `fileName` (the key), `tempPath` (the temporary file, below `_delta_log`),
//! `complete` (`"true"` once the commit is under its own name) and `expireTime` (seconds since 1970). The method is
//! in `committers/dynamodb.rs`; here are only the requests. They are signed by the object store crate, with the bucket's
//! credentials unless others are given.
//!
//! Invariant: a claim is sent only once from here; after [`Claim::Made`] it is the caller's; after an error there is none.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use object_store::ClientOptions;
use object_store::HeaderValue;
use object_store::aws::{AwsAuthorizer, AwsCredentialProvider};
use object_store::client::{HttpClient, HttpErrorKind, HttpRequest, HttpRequestBody};
use serde_json::{Value, json};

use crate::config::options::Options;
use crate::error::{Error, Result};
use crate::events::TARGET;
use crate::http::client::{Redirects, http_client};
use crate::http::credentials::no_credentials;
use crate::location::Location;

/// The attempts of a request that may be retried.
const ATTEMPTS: u32 = 5;
/// Pause before the second attempt; doubled for each further one.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a complete item is kept, in seconds, as in delta-spark.
const KEPT_SECONDS: u64 = 24 * 60 * 60;
/// Longer answers are not parsed.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// A table of DynamoDB.
pub struct LockTable {
    client: HttpClient,
    credentials: AwsCredentialProvider,
    endpoint: String,
    region: String,
    name: String,
    options: Options,
}

/// The names of a table in items: its root in Hadoop's form, not encoded.
#[derive(Debug, Clone)]
pub struct TablePaths {
    /// With the scheme of its location.
    pub own: String,
    /// With the other of the two schemes (`s3`, `s3a`), which another client may use for the same table.
    pub other: String,
}

impl TablePaths {
    /// The names of the table at `location`.
    pub(crate) fn of(location: &Location) -> Result<Self> {
        let bucket = location.base.split_once("://").map_or("", |(_, bucket)| bucket);
        let path = |scheme: &str| format!("{scheme}://{bucket}/{}", location.root);
        match location.text.split_once("://") {
            Some(("s3", _)) => Ok(Self { own: path("s3"), other: path("s3a") }),
            Some(("s3a", _)) => Ok(Self { own: path("s3a"), other: path("s3") }),
            _ => Err(Error::invalid(
                "writers that commit through DynamoDB know a table by its s3:// or s3a:// location; use that",
            )),
        }
    }
}

/// Whether items decide which writer makes the file at `path`: only for files of the log.
pub(crate) fn decides(path: &str) -> bool {
    path.split('/').next() == Some("_delta_log")
}

/// An item: the claim of a file of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The name of the file in the log.
    pub file_name: String,
    /// The path of the temporary file, relative to the log's folder.
    pub temp_path: String,
    /// Whether the file is in the log under its name.
    pub complete: bool,
    /// When it expires, in seconds since 1970; only for complete items.
    pub expire_time: Option<u64>,
}

/// How a claim ended.
pub enum Claim {
    /// The caller has the claim.
    Made,
    /// The name was claimed already: by another writer, or by this claim, if it was sent twice in transit.
    Taken,
    /// The request was sent and its answer is lost.
    Unknown(Error),
}

/// A failed request.
enum Failure {
    /// Refused with this status, DynamoDB's name for the reason, and a message.
    Refused(u16, String, String),
    /// Never sent.
    NotSent(String),
    /// Anything may have happened.
    Lost(String),
}

impl LockTable {
    /// Opens the table without a request.
    pub(crate) fn open(
        options: &Options,
        name: String,
        region: String,
        endpoint: String,
        credentials: AwsCredentialProvider,
    ) -> object_store::Result<Self> {
        let mut client = ClientOptions::new();
        for (key, value) in options.keys_of() {
            client = client.with_config(key, value);
        }
        if endpoint.starts_with("http://") {
            client = client.with_allow_http(true);
        }
        let client = http_client(&client, Redirects::SameServer)?;
        Ok(Self { client, credentials, endpoint, region, name, options: options.clone() })
    }

    /// The item of one file.
    pub async fn item(&self, table_path: &str, file_name: &str) -> Result<Option<Item>> {
        let key = json!({"tablePath": {"S": table_path}, "fileName": {"S": file_name}});
        let body = json!({"TableName": self.name, "Key": key, "ConsistentRead": true});
        let answer = self.ask("GetItem", &body).await?;
        answer.get("Item").filter(|item| item.as_object().is_some_and(|o| !o.is_empty())).map(parse).transpose()
    }

    /// The item with the greatest name.
    pub async fn newest(&self, table_path: &str) -> Result<Option<Item>> {
        let body = json!({
            "TableName": self.name,
            "KeyConditionExpression": "tablePath = :path",
            "ExpressionAttributeValues": {":path": {"S": table_path}},
            "ScanIndexForward": false,
            "Limit": 1,
            "ConsistentRead": true,
        });
        let answer = self.ask("Query", &body).await?;
        answer.get("Items").and_then(|items| items.get(0)).map(parse).transpose()
    }

    /// Adds an incomplete item unless the file has one.
    pub async fn claim(&self, table_path: &str, file_name: &str, temp_path: &str) -> Result<Claim> {
        let item = json!({
            "tablePath": {"S": table_path},
            "fileName": {"S": file_name},
            "tempPath": {"S": temp_path},
            "complete": {"S": "false"},
        });
        let condition = "attribute_not_exists(fileName)";
        let body = json!({"TableName": self.name, "Item": item, "ConditionExpression": condition});
        match self.send("PutItem", &body).await {
            Ok(_) => Ok(Claim::Made),
            Err(Failure::Refused(_, code, _)) if code == "ConditionalCheckFailedException" => Ok(Claim::Taken),
            Err(failure) if failure.is_open() => Ok(Claim::Unknown(self.error(failure))),
            Err(failure) => Err(self.error(failure)),
        }
    }

    /// Marks an item complete: the file is under its own name. An item that was replaced since is not changed.
    pub async fn complete(&self, table_path: &str, item: &Item) -> Result<()> {
        let done = json!({
            "tablePath": {"S": table_path},
            "fileName": {"S": item.file_name},
            "tempPath": {"S": item.temp_path},
            "complete": {"S": "true"},
            "expireTime": {"N": (now_seconds() + KEPT_SECONDS).to_string()},
        });
        let body = json!({
            "TableName": self.name,
            "Item": done,
            "ConditionExpression": "tempPath = :path",
            "ExpressionAttributeValues": {":path": {"S": item.temp_path}},
        });
        match self.repeat("PutItem", &body).await {
            Err(Failure::Refused(_, code, _)) if code == "ConditionalCheckFailedException" => Ok(()),
            other => other.map(drop).map_err(|failure| self.error(failure)),
        }
    }

    async fn ask(&self, operation: &str, body: &Value) -> Result<Value> {
        self.repeat(operation, body).await.map_err(|failure| self.error(failure))
    }

    /// Sends a request that may be retried until there is an answer.
    async fn repeat(&self, operation: &str, body: &Value) -> Result<Value, Failure> {
        let mut attempt = 1;
        loop {
            match self.send(operation, body).await {
                Err(failure) if attempt < ATTEMPTS && failure.is_passing() => {
                    let name = &self.name;
                    log::info!(target: TARGET, "{operation} of the table {name} of DynamoDB failed and is sent again");
                    tokio::time::sleep(PAUSE * 2u32.pow(attempt - 1)).await;
                    attempt += 1;
                }
                other => return other,
            }
        }
    }

    async fn send(&self, operation: &str, body: &Value) -> Result<Value, Failure> {
        let mut request = HttpRequest::new(HttpRequestBody::from(body.to_string()));
        let not_sent = |e: &dyn std::fmt::Display| Failure::NotSent(e.to_string());
        *request.uri_mut() = self.endpoint.parse().map_err(|e| not_sent(&e))?;
        *request.method_mut() = "POST".parse().map_err(|e| not_sent(&e))?;
        let target = format!("DynamoDB_20120810.{operation}");
        let target = HeaderValue::from_str(&target).map_err(|e| not_sent(&e))?;
        request.headers_mut().insert("x-amz-target", target);
        request.headers_mut().insert("content-type", HeaderValue::from_static("application/x-amz-json-1.0"));
        let credential = self.credentials.get_credential().await.map_err(|e| match no_credentials(&e) {
            // No retry, which would wait as long again.
            Some(none) => Failure::Refused(403, "no credentials".into(), none.to_string()),
            None => not_sent(&e),
        })?;
        let authorizer = AwsAuthorizer::new(&credential, "dynamodb", &self.region);
        authorizer.try_authorize(&mut request, None).map_err(|e| not_sent(&e))?;

        let response = self.client.execute(request).await.map_err(|e| match e.kind() {
            HttpErrorKind::Connect => not_sent(&e),
            _ => Failure::Lost(e.to_string()),
        })?;
        let status = response.status();
        let bytes = response.into_body().bytes().await.map_err(|e| Failure::Lost(e.to_string()))?;
        if bytes.len() > MAX_ANSWER_BYTES {
            return Err(Failure::Lost("the answer is too long".into()));
        }
        if status.is_success() {
            return serde_json::from_slice(&bytes).map_err(|e| Failure::Lost(e.to_string()));
        }
        let answer: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let value = |name: &str| answer.get(name).and_then(Value::as_str);
        let code = value("__type").and_then(|code| code.rsplit('#').next()).unwrap_or_default().to_owned();
        let message = value("message").or(value("Message")).unwrap_or_default().to_owned();
        Err(Failure::Refused(status.as_u16(), code, message))
    }

    fn error(&self, failure: Failure) -> Error {
        let name = &self.name;
        let passing = failure.is_passing();
        let (message, cause) = match failure {
            Failure::NotSent(cause) => {
                (format!("no request reached DynamoDB (table {name}); check the credentials and the endpoint"), cause)
            }
            Failure::Lost(cause) => (format!("DynamoDB's answer about its table {name} is lost"), cause),
            Failure::Refused(status, code, message) => {
                let advice = match code.as_str() {
                    "ResourceNotFoundException" => {
                        "; make it, with the string keys tablePath (hash) and fileName (range), or check \
                         deltic.s3.dynamodb.table and deltic.s3.dynamodb.region"
                    }
                    _ if passing => "; try again",
                    _ => "; check the credentials and their permissions (GetItem, PutItem, Query)",
                };
                let reason = if code.is_empty() { format!("status {status}") } else { code };
                (format!("DynamoDB refused to use its table {name} ({reason}){advice}"), message)
            }
        };
        Error::storage(passing, message).caused_by(self.options.redact(&cause))
    }
}

impl Failure {
    /// Whether the request may have been carried out nonetheless. An answer without DynamoDB's name of a reason came from a
    /// server in between.
    fn is_open(&self) -> bool {
        match self {
            Self::Lost(_) | Self::Refused(408 | 500.., ..) => true,
            Self::Refused(_, code, _) => code.is_empty(),
            Self::NotSent(_) => false,
        }
    }

    /// Whether a later attempt may succeed.
    fn is_passing(&self) -> bool {
        match self {
            Self::NotSent(_) | Self::Lost(_) | Self::Refused(500.., ..) => true,
            Self::Refused(_, code, _) => matches!(
                code.as_str(),
                "ProvisionedThroughputExceededException"
                    | "ThrottlingException"
                    | "RequestLimitExceeded"
                    | "LimitExceededException"
            ),
        }
    }
}

/// Seconds since 1970.
pub fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

fn parse(item: &Value) -> Result<Item> {
    let value = |name: &str, kind: &str| item.get(name).and_then(|value| value.get(kind)).and_then(Value::as_str);
    let string = |name: &str| {
        let missing = || Error::corrupt(format!("an item of the DynamoDB table has no string '{name}'"));
        value(name, "S").map(str::to_owned).ok_or_else(missing)
    };
    let parsed = Item {
        file_name: string("fileName")?,
        temp_path: string("tempPath")?,
        complete: string("complete")?.eq_ignore_ascii_case("true"),
        expire_time: value("expireTime", "N").and_then(|n| n.parse().ok()),
    };
    if parsed.file_name.is_empty() || parsed.file_name.contains('/') {
        return Err(Error::corrupt("an item of the DynamoDB table names a file outside the log"));
    }
    Ok(parsed)
}
