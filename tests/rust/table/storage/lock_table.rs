//! A simulated DynamoDB with one table, `locks`. It supports the requests of deltic, and fails on request.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// A failure of one request.
#[derive(Clone, Copy)]
pub(crate) enum Fault {
    /// Carried out, but the connection closes without an answer.
    Lost,
    /// Not carried out, and the connection closes without an answer.
    Dropped,
    /// Refused with this status and name.
    Refused(u16, &'static str),
    /// Carried out twice, and answered as the second time.
    Repeated,
}

#[derive(Default)]
struct State {
    /// Items by table path and file name.
    items: BTreeMap<(String, String), Value>,
    faults: VecDeque<(&'static str, Fault)>,
    /// The operation of each request.
    log: Vec<String>,
}

pub(crate) struct LockTable {
    state: Arc<Mutex<State>>,
    endpoint: String,
}

impl LockTable {
    pub(crate) fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
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

    /// The options of a bucket with this lock table.
    pub(crate) fn options(&self, mut bucket: HashMap<String, String>) -> HashMap<String, String> {
        for (key, value) in
            [("log_store", "dynamodb"), ("dynamodb.table", "locks"), ("dynamodb.endpoint", &self.endpoint)]
        {
            bucket.insert(format!("deltic.s3.{key}"), value.into());
        }
        bucket
    }

    /// Lets the next requests of `operation` fail, in order.
    pub(crate) fn fail(&self, operation: &'static str, faults: &[Fault]) {
        self.state.lock().unwrap().faults.extend(faults.iter().map(|fault| (operation, *fault)));
    }

    pub(crate) fn insert(
        &self,
        table_path: &str,
        file_name: &str,
        temp_path: &str,
        complete: bool,
        expire_time: Option<u64>,
    ) {
        let mut item = json!({
            "tablePath": {"S": table_path}, "fileName": {"S": file_name}, "tempPath": {"S": temp_path},
            "complete": {"S": complete.to_string()},
        });
        if let Some(at) = expire_time {
            item["expireTime"] = json!({"N": at.to_string()});
        }
        self.state.lock().unwrap().items.insert((table_path.into(), file_name.into()), item);
    }

    pub(crate) fn item(&self, table_path: &str, file_name: &str) -> Option<Value> {
        self.state.lock().unwrap().items.get(&(table_path.to_owned(), file_name.to_owned())).cloned()
    }

    pub(crate) fn requests(&self, operation: &str) -> usize {
        self.state.lock().unwrap().log.iter().filter(|o| *o == operation).count()
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    loop {
        let mut headers = HashMap::new();
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        assert_eq!(line, "POST / HTTP/1.1\r\n");
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            match line.trim_end().split_once(": ") {
                Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.to_owned()),
                None => break,
            };
        }
        let mut body = vec![0; headers["content-length"].parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        assert!(headers["authorization"].contains("/dynamodb/aws4_request"), "{headers:?}");
        let operation = headers["x-amz-target"].strip_prefix("DynamoDB_20120810.").unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();

        let mut state = state.lock().unwrap();
        state.log.push(operation.to_owned());
        let fault = match state.faults.front() {
            Some((failing, _)) if *failing == operation => state.faults.pop_front().map(|(_, fault)| fault),
            _ => None,
        };
        let (status, answer) = match fault {
            Some(Fault::Dropped) => return,
            // Errors repeat parts of the request, as those of servers.
            Some(Fault::Refused(status, code)) => (status, refusal(code, &format!("{headers:?}"))),
            Some(Fault::Repeated) => {
                answer(&mut state, operation, &body);
                answer(&mut state, operation, &body)
            }
            Some(Fault::Lost) | None => answer(&mut state, operation, &body),
        };
        drop(state);
        if let Some(Fault::Lost) = fault {
            return;
        }
        let text = answer.to_string();
        let head = format!("HTTP/1.1 {status} Answer\r\nContent-Length: {}\r\n\r\n", text.len());
        if writer.write_all((head + &text).as_bytes()).is_err() {
            return;
        }
    }
}

fn refusal(code: &str, message: &str) -> Value {
    // A proxy gives no reason.
    let code = (!code.is_empty()).then(|| format!("com.amazonaws.dynamodb.v20120810#{code}"));
    json!({"__type": code, "message": message})
}

fn answer(state: &mut State, operation: &str, body: &Value) -> (u16, Value) {
    if body["TableName"] != "locks" {
        return (400, refusal("ResourceNotFoundException", "Requested resource not found"));
    }
    let text = |value: &Value| value["S"].as_str().unwrap().to_owned();
    let key = |item: &Value| (text(&item["tablePath"]), text(&item["fileName"]));
    match operation {
        "GetItem" => {
            assert_eq!(body["ConsistentRead"], true);
            let found = state.items.get(&key(&body["Key"]));
            (200, found.map_or(json!({}), |item| json!({"Item": item})))
        }
        "Query" => {
            assert_eq!(
                (&body["ConsistentRead"], &body["ScanIndexForward"], &body["Limit"]),
                (&true.into(), &false.into(), &1.into())
            );
            assert_eq!(body["KeyConditionExpression"], "tablePath = :path");
            let path = text(&body["ExpressionAttributeValues"][":path"]);
            let newest: Vec<&Value> =
                state.items.iter().rev().filter(|((p, _), _)| *p == path).map(|(_, item)| item).take(1).collect();
            (200, json!({"Items": newest}))
        }
        "PutItem" => {
            let key = key(&body["Item"]);
            let now = state.items.get(&key);
            let holds = match body["ConditionExpression"].as_str().unwrap() {
                "attribute_not_exists(fileName)" => now.is_none(),
                "tempPath = :path" => {
                    now.is_some_and(|item| item["tempPath"] == body["ExpressionAttributeValues"][":path"])
                }
                other => panic!("{other}"),
            };
            if !holds {
                return (400, refusal("ConditionalCheckFailedException", "The conditional request failed"));
            }
            state.items.insert(key, body["Item"].clone());
            (200, json!({}))
        }
        other => panic!("{other}"),
    }
}
