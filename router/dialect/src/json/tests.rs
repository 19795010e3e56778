//! Bodies, well-formed or not.

use super::*;

#[test]
fn keeps_order_and_duplicates() {
    let json = Json::parse(br#"{"b":1,"a":[1,2],"b":[1,"x",2]}"#).unwrap();
    let Json::Object(members) = json else {
        panic!("not an object")
    };
    assert_eq!(members[0].0, "b");
    assert_eq!(members[1].1, Json::Ids(vec![1, 2]));
    assert_eq!(
        members[2].1.to_value(),
        serde_json::json!([1, "x", 2]),
        "a mixed list keeps its order"
    );
}

#[test]
fn an_object_of_too_many_keys_is_named() {
    let object = |keys: usize| {
        let members: Vec<String> = (0..keys).map(|key| format!("\"k{key}\":0")).collect();
        format!("{{{}}}", members.join(","))
    };
    let most = object(MAX_KEYS);
    let over = object(MAX_KEYS + 1);
    for (body, place) in [
        (over.clone(), ""),
        (format!(r#"{{"parameters":{over}}}"#), "parameters: "),
        (format!(r#"{{"messages":[1,{over}]}}"#), "messages[1]: "),
        (
            format!(r#"{{"messages":[{{"content":["x",{over}]}}]}}"#),
            "messages[0].content[1]: ",
        ),
    ] {
        let refusal = Json::parse(body.as_bytes()).unwrap_err();
        let expected = format!(
            "Failed to parse the request body as JSON: {place}more than 4096 keys in one object"
        );
        assert!(
            refusal.message().starts_with(&expected),
            "{}",
            refusal.message()
        );
    }
    assert!(Json::parse(format!("[{most},{most}]").as_bytes()).is_ok());
}

/// Each class of serde's errors, with the value that it is about.
#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a table of bodies, read from top to bottom"
)]
fn what_is_no_json_is_told_with_its_field() {
    for (body, path, problem) in [
        (
            r#"{"temperature":1e999}"#,
            "temperature",
            "number out of range",
        ),
        (
            r#"{"parameters":{"a":0,"b":-1e400}}"#,
            "parameters.b",
            "number out of range",
        ),
        (r#"{"seed":01}"#, "seed", "invalid number"),
        (r#"{"seed":1.}"#, "seed", "invalid number"),
        (r#"{"seed":+1}"#, "seed", "expected value"),
        (r#"{"seed":NaN}"#, "seed", "expected value"),
        (r#"{"stream":True}"#, "stream", "expected value"),
        (r#"{"stream":tru}"#, "stream", "expected ident"),
        (r#"{"a":}"#, "a", "expected value"),
        (
            r#"{"messages":[{"content":"a\q"}]}"#,
            "messages[0].content",
            "invalid escape",
        ),
        (
            r#"{"messages":[{"content":"\ud800x"}]}"#,
            "messages[0].content",
            "unexpected end of hex escape",
        ),
        (
            r#"{"messages":[{"content":"\udc00"}]}"#,
            "messages[0].content",
            "lone leading surrogate in hex escape",
        ),
        (
            "{\"messages\":[{\"content\":\"a\nb\"}]}",
            "messages[0].content",
            "control character",
        ),
        (r#"{"inputs":"abc"#, "inputs", "EOF while parsing a string"),
        (r#"{"stop":["a" "b"]}"#, "stop", "expected `,` or `]`"),
        (r#"{"stop":["a",]}"#, "stop", "trailing comma"),
        (r#"{"stop":["a""#, "stop", "EOF while parsing a list"),
        (
            r#"{"parameters":{"a":1 "b"}}"#,
            "parameters",
            "expected `,` or `}`",
        ),
        (r#"{"parameters":{"a" 1}}"#, "parameters", "expected `:`"),
        (
            r#"{"parameters":{a:1}}"#,
            "parameters",
            "key must be a string",
        ),
        (r#"{"parameters":{"a":1,}}"#, "parameters", "trailing comma"),
        (
            r#"{"parameters":{"a":1"#,
            "parameters",
            "EOF while parsing an object",
        ),
        ("{'a':1}", "", "key must be a string"),
        ("", "", "EOF while parsing a value"),
        ("{} x", "", "trailing characters"),
        ("nul", "", "EOF while parsing a value"),
    ] {
        let refusal = Json::parse(body.as_bytes()).unwrap_err();
        let place = if path.is_empty() {
            String::new()
        } else {
            format!("{path}: ")
        };
        let due = format!("Failed to parse the request body as JSON: {place}{problem}");
        assert!(
            refusal.message().starts_with(&due),
            "{body}: {}, and due is {due}",
            refusal.message()
        );
        assert_eq!(
            refusal.param(),
            Some(path).filter(|path| !path.is_empty()),
            "{body}"
        );
    }
    let bytes = [br#"{"a":["x",""#.as_slice(), &[0xff], br#""]}"#].concat();
    let message = Json::parse(&bytes).unwrap_err().message().to_owned();
    assert!(
        message.contains("JSON: a[1]: invalid unicode code point"),
        "{message}"
    );
}

#[test]
fn a_long_or_hostile_path_is_cut_and_kept_on_one_line() {
    let deep = format!(r#"{{"{}":{}"#, r"k\n".repeat(40), "[".repeat(60));
    let refusal = Json::parse(deep.as_bytes()).unwrap_err();
    assert!(!refusal.message().contains('\n'), "{}", refusal.message());
    assert!(refusal.message().len() < 400, "{}", refusal.message());
    assert!(refusal.message().contains("EOF while parsing a"));
    assert!(refusal.param().unwrap().len() <= 400);
}

#[test]
fn refuses_deep_nesting_and_trailing_text() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(Json::parse(deep(MAX_DEPTH).as_bytes()).is_ok());
    let error = Json::parse(deep(MAX_DEPTH + 1).as_bytes()).unwrap_err();
    assert!(error.message().contains("nested deeper than 64 levels"));
    assert!(Json::parse(b"{} x").is_err());
    assert!(Json::parse(b"{").is_err());
    assert!(Json::parse(b"1e999").is_err());
    assert!(Json::parse(&[b'"', 0xff, b'"']).is_err());
}
