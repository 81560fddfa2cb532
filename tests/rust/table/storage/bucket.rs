//! An HTTP server that simulates a bucket and fails on request. It supports listing, reading, writing, copying and deleting
//! with the interfaces of S3 and Google, and blobs, blocks and listings of Azure.
//!
//! A request whose key contains `!503`, `!409` or another status is answered with that status. A request whose key
//! contains `!lost` is carried out, but the connection closes without an answer.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use percent_encoding::percent_decode_str;

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Vec<u8>>,
    uploads: HashMap<String, (String, BTreeMap<u32, Vec<u8>>)>,
    /// Method and key (or prefix of a listing) of each request.
    log: Vec<(String, String)>,
    page: usize,
    /// Ignores the conditions of puts.
    ignores_conditions: bool,
    /// The status of the answer to the completion of a conditional upload (0: no answer), and whether it is carried out.
    completing: Option<(u16, bool)>,
    /// Uncommitted blocks, by key and id.
    blocks: HashMap<String, BTreeMap<String, Vec<u8>>>,
    /// Checks the blocks of a list before its condition.
    blocks_first: bool,
    /// Keys with uncommitted blocks count as existing.
    uncommitted_blocks_exist: bool,
    /// How many more requests are refused: blocks with 503, puts without a condition with 500.
    refusals_left: usize,
    /// Query and headers of the newest list of blocks.
    listed: (HashMap<String, String>, HashMap<String, String>),
    /// A key that the next listing leaves out.
    omitted: Option<String>,
    /// The answer to copy requests.
    copying: Copying,
    /// A copy that does not exist yet: its key, its bytes, and the number of requests for it until it exists.
    late: Option<(String, Vec<u8>, usize)>,
}

/// The behaviour of copy requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Copying {
    #[default]
    Whole,
    /// Puts an empty file.
    Nothing,
    /// Makes the copy after this many requests for it. Until then it is an empty file.
    Late(usize),
    Refused(u16),
    /// Answers with success, but copies nothing.
    Lost,
}

#[derive(Clone)]
pub(crate) struct Bucket {
    state: Arc<Mutex<State>>,
    pub(crate) endpoint: String,
}

struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    /// The `Content-Length` of an answer whose body is not sent.
    length: Option<usize>,
}

impl Answer {
    fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), length: None }
    }

    fn error(status: u16, code: &str) -> Self {
        Self::echo(status, code, "")
    }

    /// An error that repeats parts of the request, as servers do.
    fn echo(status: u16, code: &str, request: &str) -> Self {
        let request = escaped(request);
        Self::new(status, format!("<Error><Code>{code}</Code><Message>{code} happened {request}</Message></Error>"))
    }
}

impl State {
    /// Puts an object, and discards the uncommitted blocks of its key.
    fn insert(&mut self, key: &str, data: Vec<u8>) {
        self.objects.insert(key.into(), data);
        self.blocks.remove(key);
    }
}

impl Bucket {
    /// Serves a bucket named `bucket`, with `page` keys per page of a listing.
    pub(crate) fn start(page: usize) -> Self {
        Self::serve(State { page, ..State::default() })
    }

    /// A bucket that ignores the conditions of puts.
    pub(crate) fn without_conditions() -> Self {
        Self::serve(State { page: 1000, ignores_conditions: true, ..State::default() })
    }

    fn serve(state: State) -> Self {
        let state = Arc::new(Mutex::new(state));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = shared.clone();
                std::thread::spawn(move || serve(stream.unwrap(), &shared));
            }
        });
        Self { state, endpoint }
    }

    pub(crate) fn options(&self) -> HashMap<String, String> {
        [
            ("aws_endpoint", self.endpoint.as_str()),
            ("aws_allow_http", "true"),
            ("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE"),
            ("AWS_SECRET_ACCESS_KEY", "verysecretaccesskey"),
            ("aws_region", "eu-north-1"),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
    }

    /// The number of requests with this method whose key contains `key`.
    pub(crate) fn requests(&self, method: &str, key: &str) -> usize {
        let state = self.state.lock().unwrap();
        state.log.iter().filter(|(m, k)| m == method && k.contains(key)).count()
    }

    /// Leaves a key out of the next listing, as if the file were newer.
    pub(crate) fn omit_from_listing(&self, key: &str) {
        self.state.lock().unwrap().omitted = Some(key.to_owned());
    }

    /// Answers the completion of conditional uploads with this status (0: no answer). The flag says whether to complete them.
    pub(crate) fn complete_with(&self, answer: Option<(u16, bool)>) {
        self.state.lock().unwrap().completing = answer;
    }

    /// Answers this many blocks with 503, or this many puts without a condition with 500.
    pub(crate) fn refuse_next(&self, times: usize) {
        self.state.lock().unwrap().refusals_left = times;
    }

    /// Lets keys with uncommitted blocks count as existing.
    pub(crate) fn block_names_with_uncommitted_blocks(&self) {
        self.state.lock().unwrap().uncommitted_blocks_exist = true;
    }

    /// Checks the blocks of a list before its condition.
    pub(crate) fn check_blocks_first(&self) {
        self.state.lock().unwrap().blocks_first = true;
    }

    /// Another writer puts a block and never commits it.
    pub(crate) fn put_uncommitted_block(&self, key: &str, id: &str) {
        self.state.lock().unwrap().blocks.entry(key.into()).or_default().insert(id.into(), Vec::new());
    }

    /// Another writer puts an object.
    pub(crate) fn put_object(&self, key: &str, data: &[u8]) {
        self.state.lock().unwrap().insert(key, data.to_vec());
    }

    pub(crate) fn forget_requests(&self) {
        self.state.lock().unwrap().log.clear();
    }

    pub(crate) fn copy_with(&self, copying: Copying) {
        self.state.lock().unwrap().copying = copying;
    }

    /// Another writer deletes an object.
    pub(crate) fn delete(&self, key: &str) {
        self.state.lock().unwrap().objects.remove(key);
    }

    /// Query and headers of the newest list of blocks.
    pub(crate) fn listed(&self) -> (HashMap<String, String>, HashMap<String, String>) {
        self.state.lock().unwrap().listed.clone()
    }

    pub(crate) fn object(&self, key: &str) -> Vec<u8> {
        self.state.lock().unwrap().objects[key].clone()
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.state.lock().unwrap().objects.keys().cloned().collect()
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let mut words = line.split(' ');
        let (method, target) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
        let mut headers = HashMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            match line.trim_end().split_once(": ") {
                Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.to_owned()),
                None => break,
            };
        }
        let length = headers.get("content-length").map_or(0, |l| l.parse().unwrap());
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let key = percent_decode_str(path.strip_prefix("/bucket").unwrap()).decode_utf8().unwrap();
        let key = key.trim_start_matches('/').to_owned();
        let query: HashMap<String, String> = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                (name.to_owned(), percent_decode_str(&value.replace('+', " ")).decode_utf8().unwrap().into_owned())
            })
            .collect();
        let mut answer = answer(&mut state.lock().unwrap(), &method, &key, &query, &headers, body);
        if method == "HEAD" {
            answer.length.get_or_insert(answer.body.len());
            answer.body.clear();
        }
        if key.contains("!lost") || answer.status == 0 {
            return;
        }
        let mut text = format!("HTTP/1.1 {} Answer\r\nx-goog-generation: 1\r\n", answer.status);
        for (name, value) in &answer.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("Content-Length: {}\r\n\r\n", answer.length.unwrap_or(answer.body.len())));
        let mut bytes = text.into_bytes();
        bytes.extend(answer.body);
        if writer.write_all(&bytes).is_err() {
            return;
        }
    }
}

fn answer(
    state: &mut State,
    method: &str,
    key: &str,
    query: &HashMap<String, String>,
    headers: &HashMap<String, String>,
    body: Vec<u8>,
) -> Answer {
    let is_azure = query.get("comp").is_some_and(|what| what == "list");
    if is_azure || query.contains_key("list-type") {
        state.log.push(("LIST".into(), query.get("prefix").cloned().unwrap_or_default()));
        return list(state, query, is_azure);
    }
    let part = query.get("comp").map(String::as_str);
    state.log.push((part.unwrap_or(method).into(), key.into()));
    if method == "POST" && query.contains_key("delete") {
        return delete_named(state, &body);
    }
    if let Some(status) = requested_status(key) {
        return Answer::echo(status, "Asked", &format!("{query:?} {headers:?}"));
    }
    match part {
        Some("block") => return put_block(state, key, &query["blockid"], body),
        Some("blocklist") => return put_list(state, key, query, headers, &body),
        Some("batch") => return delete_all(state, &body),
        _ => {}
    }
    let etag = ("ETag", "\"tag\"".to_owned());
    match (method, query.get("uploadId")) {
        ("POST", None) => {
            let id = format!("upload{}", state.log.len());
            state.uploads.insert(id.clone(), (key.into(), BTreeMap::new()));
            let result = "InitiateMultipartUploadResult";
            Answer::new(200, format!("<{result}><UploadId>{id}</UploadId></{result}>"))
        }
        ("POST", Some(id)) => {
            let is_conditional = headers.contains_key("if-none-match");
            let refusal = state.completing.filter(|_| is_conditional);
            if let Some((status, false)) = refusal {
                return Answer::error(status, "Asked");
            }
            if is_conditional && !state.ignores_conditions && state.objects.contains_key(key) {
                return Answer::error(412, "PreconditionFailed");
            }
            let Some((key, parts)) = state.uploads.remove(id) else { return Answer::error(404, "NoSuchUpload") };
            state.objects.insert(key, parts.into_values().collect::<Vec<_>>().concat());
            if let Some((status, _)) = refusal {
                return Answer::error(status, "Asked");
            }
            let result = "CompleteMultipartUploadResult";
            Answer::new(200, format!("<{result}><ETag>tag</ETag></{result}>"))
        }
        ("PUT", Some(id)) => {
            let number = query.get("partNumber").unwrap().parse().unwrap();
            if let Some(source) = headers.get("x-amz-copy-source") {
                let source = percent_decode_str(source).decode_utf8().unwrap();
                let Some(object) = state.objects.get(source.trim_start_matches('/').strip_prefix("bucket/").unwrap())
                else {
                    return Answer::error(404, "NoSuchKey");
                };
                let (object, result) = (object.clone(), "CopyPartResult");
                state.uploads.get_mut(id).unwrap().1.insert(number, object);
                return Answer::new(200, format!("<{result}><ETag>tag</ETag></{result}>"));
            }
            match state.uploads.get_mut(id) {
                Some((_, parts)) => parts.insert(number, body),
                // A part that arrives after its upload was aborted.
                None => return Answer::error(404, "NoSuchUpload"),
            };
            Answer { headers: vec![etag], ..Answer::new(200, "") }
        }
        ("DELETE", Some(id)) => {
            state.uploads.remove(id);
            Answer::new(204, "")
        }
        ("PUT", None) => {
            let google = headers.get("x-goog-if-generation-match").is_some_and(|generation| generation == "0");
            let exists =
                state.objects.contains_key(key) || (state.uncommitted_blocks_exist && state.blocks.contains_key(key));
            let is_conditional = google || headers.contains_key("if-none-match");
            if state.refusals_left > 0 && !is_conditional {
                state.refusals_left -= 1;
                return Answer::error(500, "InternalError");
            }
            if is_conditional && !state.ignores_conditions && exists {
                return Answer::error(412, "PreconditionFailed");
            }
            let body = match copied(state, key, headers) {
                Some(Ok(object)) => object,
                Some(Err(refusal)) => return refusal,
                None => body,
            };
            state.insert(key, body);
            Answer { headers: vec![etag], ..Answer::new(200, "") }
        }
        ("DELETE", None) => {
            state.objects.remove(key);
            Answer::new(204, "")
        }
        _ => {
            if let Some((to, object, requests_left)) = state.late.take_if(|(to, ..)| to == key) {
                match requests_left {
                    0 => state.insert(key, object),
                    _ => state.late = Some((to, object, requests_left - 1)),
                }
            }
            read(state, method, key, headers)
        }
    }
}

/// The bytes to copy to `key`, if the request is a copy.
fn copied(state: &mut State, key: &str, headers: &HashMap<String, String>) -> Option<Result<Vec<u8>, Answer>> {
    let source =
        ["x-amz-copy-source", "x-goog-copy-source", "x-ms-copy-source"].iter().find_map(|name| headers.get(*name));
    let source = percent_decode_str(source?).decode_utf8().unwrap();
    let source = source.split_once('?').map_or(&*source, |(path, _)| path);
    state.log.push(("COPY".into(), key.into()));
    let Some(object) = state.objects.get(source.split_once("bucket/").unwrap().1).cloned() else {
        return Some(Err(Answer::error(404, "NoSuchKey")));
    };
    Some(match state.copying {
        Copying::Whole => Ok(object),
        Copying::Nothing => Ok(Vec::new()),
        Copying::Late(requests_left) => {
            state.late = Some((key.into(), object, requests_left));
            Ok(Vec::new())
        }
        Copying::Refused(status) => Err(Answer::error(status, "Asked")),
        Copying::Lost => Err(Answer { headers: vec![("ETag", "\"tag\"".to_owned())], ..Answer::new(200, "") }),
    })
}

/// The status that a key requests by `!` and three digits.
fn requested_status(key: &str) -> Option<u16> {
    key.split_once('!').and_then(|(_, rest)| rest.get(..3)?.parse().ok())
}

fn delete_all(state: &mut State, batch: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(batch);
    let lines = text.lines().filter_map(|line| line.strip_prefix("DELETE /bucket/")?.split_once([' ', '?']));
    let mut answers = String::new();
    for (number, (key, _)) in lines.enumerate() {
        let key = percent_decode_str(key).decode_utf8().unwrap();
        let status = match requested_status(&key) {
            Some(status) => format!("{status} Asked"),
            None => state.objects.remove(&*key).map_or("404 Not Found", |_| "202 Accepted").to_owned(),
        };
        let head = format!("--batch\r\nContent-Type: application/http\r\nContent-ID: {number}");
        answers.push_str(&format!("{head}\r\n\r\nHTTP/1.1 {status}\r\n\r\n"));
    }
    let kind = ("Content-Type", "multipart/mixed; boundary=batch".to_owned());
    Answer { headers: vec![kind], ..Answer::new(202, answers + "--batch--\r\n") }
}

/// The request of S3 that deletes many files. A file that does not exist is no error.
fn delete_named(state: &mut State, request: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(request);
    let mut answers = String::new();
    let mut count = 0;
    for named in text.split("<Key>").skip(1) {
        let named = named.split_once("</Key>").unwrap().0;
        let key = named.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'");
        let key = key.replace("&amp;", "&");
        count += 1;
        if key.contains("!403") {
            answers
                .push_str(&format!("<Error><Key>{named}</Key><Code>AccessDenied</Code><Message>no</Message></Error>"));
        } else if key.contains("!404") {
            answers.push_str(&format!("<Error><Key>{named}</Key><Code>NoSuchKey</Code><Message>no</Message></Error>"));
        } else {
            state.objects.remove(&key);
            answers.push_str(&format!("<Deleted><Key>{named}</Key></Deleted>"));
        }
    }
    if count > 1000 {
        return Answer::error(400, "MalformedXML");
    }
    Answer::new(200, format!("<DeleteResult>{answers}</DeleteResult>"))
}

fn put_block(state: &mut State, key: &str, id: &str, body: Vec<u8>) -> Answer {
    if state.refusals_left > 0 {
        state.refusals_left -= 1;
        return Answer::error(503, "ServerBusy");
    }
    let blocks = state.blocks.entry(key.into()).or_default();
    if blocks.keys().any(|other| other.len() != id.len()) {
        return Answer::error(400, "InvalidBlobOrBlock");
    }
    assert!(blocks.insert(id.into(), body).is_none(), "two writers have the same block id");
    Answer::new(201, "")
}

fn put_list(
    state: &mut State,
    key: &str,
    query: &HashMap<String, String>,
    headers: &HashMap<String, String>,
    body: &[u8],
) -> Answer {
    state.listed = (query.clone(), headers.clone());
    let is_conditional = headers.get("if-none-match").is_some_and(|tag| tag == "*");
    if let Some((status, false)) = state.completing {
        return Answer::echo(status, "Asked", &format!("{query:?} {headers:?}"));
    }
    let exists = is_conditional && !state.ignores_conditions && state.objects.contains_key(key);
    if exists && !state.blocks_first {
        return Answer::error(409, "BlobAlreadyExists");
    }
    let list = std::str::from_utf8(body).unwrap();
    let ids = list.split("<Uncommitted>").skip(1).map(|rest| rest.split_once('<').unwrap().0);
    let blocks = state.blocks.get(key);
    let Some(named) = ids.map(|id| blocks?.get(id).map(Vec::as_slice)).collect::<Option<Vec<_>>>() else {
        return Answer::error(400, "InvalidBlockList");
    };
    if exists {
        return Answer::error(409, "BlobAlreadyExists");
    }
    let whole = named.concat();
    state.insert(key, whole);
    match state.completing {
        Some((status, _)) => Answer::error(status, "Asked"),
        None => Answer { headers: vec![("ETag", "\"tag\"".into())], ..Answer::new(201, "") },
    }
}

fn read(state: &State, method: &str, key: &str, headers: &HashMap<String, String>) -> Answer {
    let Some(object) = state.objects.get(key) else { return Answer::error(404, "NoSuchKey") };
    let mut fields = vec![("ETag", "\"tag\"".into()), ("Last-Modified", "Wed, 01 Jan 2025 00:00:00 GMT".into())];
    if method == "HEAD" {
        return Answer { headers: fields, length: Some(object.len()), ..Answer::new(200, "") };
    }
    let Some(range) = headers.get("range") else {
        return Answer { headers: fields, ..Answer::new(200, object.clone()) };
    };
    let (from, to) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    let (from, to) = match from.parse::<usize>() {
        Ok(from) => (from, (to.parse::<usize>().unwrap() + 1).min(object.len())),
        Err(_) => (object.len().saturating_sub(to.parse().unwrap()), object.len()),
    };
    if from >= to {
        return Answer::error(416, "InvalidRange");
    }
    fields.push(("Content-Range", format!("bytes {from}-{}/{}", to - 1, object.len())));
    Answer { headers: fields, ..Answer::new(206, &object[from..to]) }
}

fn list(state: &mut State, query: &HashMap<String, String>, is_azure: bool) -> Answer {
    let text = |name: &str| query.get(name).cloned().unwrap_or_default();
    let (prefix, delimiter) = (text("prefix"), text("delimiter"));
    let after = text("start-after").max(text("continuation-token")).max(text("marker"));
    if prefix.contains("!403") {
        return Answer::error(403, "AccessDenied");
    }
    let omitted = state.omitted.take();
    let from = text("startFrom");
    let there =
        |key: &String| key.starts_with(&prefix) && *key > after && *key >= from && Some(key) != omitted.as_ref();
    let mut keys = state.objects.iter().filter(|(key, _)| there(key));
    let mut body = String::new();
    let (mut last, mut folder) = (None, String::new());
    for (key, object) in keys.by_ref().take(state.page) {
        last = Some(key);
        if !delimiter.is_empty()
            && let Some(at) = key[prefix.len()..].find(&delimiter)
        {
            let found = &key[..prefix.len() + at + delimiter.len()];
            // A folder is listed once, on the page of its first key.
            if found != folder && !after.starts_with(found) {
                folder = found.to_owned();
                let tag = if is_azure { ("BlobPrefix", "Name") } else { ("CommonPrefixes", "Prefix") };
                body.push_str(&format!("<{0}><{1}>{2}</{1}></{0}>", tag.0, tag.1, escaped(found)));
            }
            continue;
        }
        let key = escaped(key);
        if is_azure {
            body.push_str(&format!(
                "<Blob><Name>{key}</Name><Properties><Last-Modified>Wed, 01 Jan 2025 00:00:00 GMT</Last-Modified>\
                 <Content-Length>{}</Content-Length><Content-Type/><Etag>\"tag\"</Etag></Properties></Blob>",
                object.len()
            ));
            continue;
        }
        body.push_str(&format!(
            "<Contents><Key>{key}</Key><Size>{}</Size><LastModified>2025-01-01T00:00:00.000Z</LastModified></Contents>",
            object.len()
        ));
    }
    let next = if keys.next().is_some() { escaped(last.unwrap()) } else { String::new() };
    if is_azure {
        let body = format!("<Blobs>{body}</Blobs><NextMarker>{next}</NextMarker>");
        return Answer::new(200, format!("<EnumerationResults>{body}</EnumerationResults>"));
    }
    if !next.is_empty() {
        body.push_str(&format!("<NextContinuationToken>{next}</NextContinuationToken>"));
    }
    Answer::new(200, format!("<ListBucketResult>{body}</ListBucketResult>"))
}

fn escaped(key: &str) -> String {
    key.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
