//! Validation: values that fit, values that do not, and values that would take too long to check.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::{Map, json};

use super::*;

fn mismatch(schema: Value, value: Value) -> String {
    Schema::compile(&schema).unwrap().check(&value).expect_err("it does not fit").to_string()
}

#[test]
fn a_value_that_fits_passes() {
    let schema = Schema::compile(&json!({"type": "object", "required": ["a"]})).unwrap();
    assert_eq!(schema.check(&json!({"a": 1})), Ok(()));
    assert!(schema.check(&json!({})).is_err());
}

#[test]
fn errors_name_the_path_and_what_was_expected() {
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {},
            "items": {"type": "array", "items": {"type": "object", "properties": {
                "count": {"type": "integer", "minimum": 1},
                "kind": {"enum": ["a", "b"]},
            }}},
        },
        "required": ["name"],
        "additionalProperties": false,
    });
    for (value, expect) in [
        (json!({}), r#"the whole value: "name" is a required property"#),
        (
            json!({"name": 1, "items": [{"count": "x"}]}),
            r#"/items/0/count: it is not of type "integer"; it is "x""#,
        ),
        (
            json!({"name": 1, "items": [{}, {"count": 0}]}),
            "/items/1/count: it is less than the minimum of 1; it is 0",
        ),
        (
            json!({"name": 1, "items": [{"kind": "c"}]}),
            r#"/items/0/kind: it is not one of ["a","b"]; it is "c""#,
        ),
        (
            json!({"name": 1, "nmae": 2}),
            "the whole value: Additional properties are not allowed ('nmae' was unexpected)",
        ),
    ] {
        assert_eq!(mismatch(schema.clone(), value), expect);
    }
}

#[test]
fn the_error_for_alternatives_names_the_nearest() {
    let schema = json!({"anyOf": [
        {"type": "object", "required": ["a"]},
        {"type": "object", "required": ["b", "c"]},
    ]});
    let text = mismatch(schema, json!({}));
    assert!(text.contains(r#"(nearest:  "a" is a required property)"#), "{text}");
}

#[test]
fn errors_are_bounded_in_number_and_length() {
    let schema = json!({"items": {"type": "integer"}});
    let text = mismatch(schema, json!(vec!["x".repeat(10_000); 100]));
    assert!(text.ends_with("; and 92 more"), "{text}");
    assert!(text.len() < 4000, "{}", text.len());
    let options: Vec<String> = (0..3000).map(|number| format!("option {number}")).collect();
    let text = mismatch(json!({"enum": options}), json!("none"));
    assert!(text.len() < 1000, "{}", text.len());
}

#[test]
fn an_unusable_schema_is_refused() {
    let deep = (0..100).fold(json!({}), |inner, _| json!({"items": inner}));
    for (schema, expect) in [
        (json!("string"), "a schema must be an object"),
        (json!({"type": "strnig"}), r#"/type it is not one of ["array","boolean","integer""#),
        (json!({"pattern": "("}), "regex"),
        (json!({"pattern": "(?=a)"}), "regex"),
        (json!({"description": "x".repeat(SCHEMA_SIZE_MAX)}), "the maximum is 65536"),
        (deep, "levels deep"),
        (json!({"$ref": "https://example.com/schema.json"}), "https://example.com"),
        (json!({"$ref": "file:///etc/passwd"}), "file:///etc/passwd"),
        (json!({"$ref": "#/nowhere"}), "/nowhere"),
    ] {
        let error = Schema::compile(&schema).expect_err("unusable").to_string();
        assert!(error.contains(expect), "{schema}: {error}");
    }
}

#[test]
fn a_schema_may_refer_to_itself() {
    let tree = json!({
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#"}}},
        "additionalProperties": false,
    });
    let schema = Schema::compile(&tree).unwrap();
    assert_eq!(schema.check(&json!({"children": [{"children": []}]})), Ok(()));
    assert!(schema.check(&json!({"children": [{"chidlren": []}]})).is_err());
    let endless = Schema::compile(&json!({"$ref": "#"})).unwrap();
    assert!(endless.check(&json!(1)).unwrap_err().to_string().contains("in a circle"));
}

#[test]
fn the_same_schema_is_compiled_once() {
    let schemas = SchemaCache::default();
    let one = schemas.get_or_compile(&json!({"type": "object"})).unwrap();
    let same = schemas.get_or_compile(&json!({"type": "object"})).unwrap();
    assert!(Arc::ptr_eq(&one.0, &same.0));
    for number in 0..2 * SchemaCache::CAPACITY {
        schemas.get_or_compile(&json!({"minimum": number})).unwrap();
    }
    assert!(schemas.compiled.lock().unwrap().len() <= SchemaCache::CAPACITY);
}

/// Runs `work` on a thread with the stack of a tokio thread, and with a timeout.
fn run_in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::Builder::new().stack_size(2 * 1024 * 1024);
    thread.spawn(move || sender.send(work())).unwrap();
    receiver.recv_timeout(Duration::from_secs(60)).expect("the work ends in time")
}

/// Compiles a schema and checks a value with the limits of a separate thread.
fn check_result(schema: Value, value: Value) -> String {
    run_in_time(move || {
        let schema = match Schema::compile(&schema) {
            Ok(schema) => schema,
            Err(error) => return error.to_string(),
        };
        let checked = schema.check_within(&value, WorkLimits::APART);
        checked.map_or_else(|mismatch| mismatch.to_string(), |()| "fits".to_owned())
    })
}

fn nested(levels: usize, inner: Value) -> Value {
    (0..levels).fold(inner, |inner, _| json!([inner]))
}

#[test]
fn alternatives_that_refer_back_are_refused_before_they_multiply() {
    let twice = json!([{"$ref": "#"}, {"$ref": "#"}]);
    for schema in [
        json!({"type": ["array", "string"], "items": {"anyOf": twice}}),
        json!({"type": ["array", "string"], "items": {"oneOf": twice}}),
        json!({"type": ["array", "string"], "items": {"allOf": twice}}),
        json!({"type": ["array", "string"], "items": {"if": {"$ref": "#"}, "then": {"$ref": "#"}}}),
        json!({"type": ["array", "string"], "items": {"not": {"$ref": "#"}}, "contains": {"$ref": "#"}}),
        json!({"$dynamicAnchor": "a", "type": ["array", "string"],
            "items": {"allOf": [{"$dynamicRef": "#a"}, {"$ref": "#"}]}}),
    ] {
        assert!(
            check_result(schema.clone(), nested(60, json!(1))).contains("too long"),
            "{schema}"
        );
        // A check that is not refused must end.
        for levels in (0..30).step_by(3) {
            check_result(schema.clone(), nested(levels, json!(1)));
        }
    }
}

#[test]
fn counting_ends_at_the_limit() {
    let items = json!(vec![0; 1_000_000]);
    let all = json!({"allOf": vec![json!({"items": true}); 2_000]});
    assert!(check_result(all, items).contains("too long"));
    let fields: Map<String, Value> =
        (0..300_000).map(|index| (index.to_string(), json!(0))).collect();
    let patterns: Map<String, Value> =
        (0..200).map(|index| (format!("x{index}"), json!(true))).collect();
    let schema = json!({"patternProperties": patterns, "additionalProperties": true});
    assert!(check_result(schema, Value::Object(fields)).contains("too long"));
}

#[test]
fn unevaluated_parts_are_counted_as_often_as_they_are_validated() {
    let schema = (0..30).fold(
        json!({"properties": {"a": {}}}),
        |inner, _| json!({"anyOf": [inner], "unevaluatedProperties": {"type": "integer"}}),
    );
    assert!(check_result(schema, json!({"a": 1, "b": 2})).contains("too long"));
    let schema = json!({
        "allOf": [{"properties": {"a": {"type": "integer"}}}],
        "unevaluatedProperties": false,
    });
    assert_eq!(check_result(schema.clone(), json!({"a": 1})), "fits");
    assert!(check_result(schema, json!({"a": 1, "b": 2})).contains("Unevaluated"));
}

#[test]
fn a_chain_of_references_at_every_level_of_a_value_is_refused() {
    let mut parts: Map<String, Value> = (0..90)
        .map(|index| (index.to_string(), json!({"$ref": format!("#/$defs/{}", index + 1)})))
        .collect();
    parts.insert("90".to_owned(), json!({"items": {"$ref": "#/$defs/0"}}));
    let schema = json!({"$ref": "#/$defs/0", "$defs": parts});
    assert_eq!(check_result(schema.clone(), nested(3, json!(1))), "fits");
    assert!(check_result(schema, nested(100, json!(1))).contains("nested too deep"));
}

#[test]
fn a_deep_value_fits_a_recursive_schema() {
    let list = json!({
        "type": "object",
        "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "required": ["next"],
    });
    let value = |end: Value| (0..120).fold(end, |next, _| json!({"next": next}));
    assert_eq!(check_result(list.clone(), value(Value::Null)), "fits");
    assert!(check_result(list, value(json!(7))).contains("nearest"));
}

#[test]
fn a_large_flat_value_fits() {
    let schema = json!({"items": {"type": "object", "properties": {
        "id": {"type": "integer"}, "name": {"type": "string", "pattern": "^[a-z]+$"}},
        "additionalProperties": false}});
    let items: Vec<Value> = (0..20_000).map(|id| json!({"id": id, "name": "abc"})).collect();
    assert_eq!(check_result(schema.clone(), json!(items)), "fits");
    let wrong: Vec<Value> = (0..20_000).map(|id| json!({"id": id, "name": "123"})).collect();
    assert!(check_result(schema, json!(wrong)).contains("too large to say where"));
}

#[test]
fn patterns_are_charged_by_their_size_and_the_text() {
    // Neither engine backtracks here: the pattern is matched in linear time.
    let doubled = json!({"pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"});
    assert!(check_result(doubled, json!("a".repeat(100_000))).contains("does not match"));
    let large = json!({"pattern": "(?:a|b|ab){1,500}c"});
    assert!(check_result(large.clone(), json!("a".repeat(2_000_000))).contains("too long"));
    assert!(check_result(large, json!("a".repeat(100))).contains("does not match"));
    let many: Vec<Value> =
        (0..1_000).map(|index| json!({"pattern": format!("x{index}")})).collect();
    assert!(check_result(json!({"allOf": many}), json!("")).contains("the maximum is 256"));
    let large: Vec<Value> =
        (0..200).map(|index| json!({"pattern": format!("(?:a|b|ab){{1,500}}{index}")})).collect();
    assert!(check_result(json!({"allOf": large}), json!("")).contains("too large together"));
}

#[test]
fn unique_items_that_hash_alike_are_refused() {
    // All items have the same hash.
    let alike = |count: usize| {
        json!((0..count).map(|index| json!(vec![json!([]); index])).collect::<Vec<_>>())
    };
    let schema = json!({"uniqueItems": true});
    assert!(check_result(schema.clone(), alike(600)).contains("too long"));
    assert_eq!(check_result(schema.clone(), alike(20)), "fits");
    let numbers: Vec<u64> = (0..20_000).collect();
    assert_eq!(check_result(schema.clone(), json!(numbers)), "fits");
    let rounded: Vec<u64> = (0..20_000).map(|index| u64::MAX - index).collect();
    assert!(check_result(schema, json!(rounded)).contains("too long"));
}

#[test]
fn a_format_is_not_validated() {
    let schema = json!({"$schema": "http://json-schema.org/draft-07/schema#", "format": "regex"});
    assert_eq!(check_result(schema, json!("(")), "fits");
}

#[test]
fn errors_with_long_paths_are_not_listed() {
    let schema = json!({"additionalProperties": {"items": {"type": "string"}}});
    let mut fields = Map::new();
    fields.insert("x".repeat(1_000_000), json!(vec![1; 10_000]));
    assert!(check_result(schema, Value::Object(fields)).contains("too large to say where"));
}

#[test]
fn no_schema_of_the_largest_size_is_slow_to_compile() {
    let size = SCHEMA_SIZE_MAX - 1_000;
    let parts = size / 60;
    let refs: Map<String, Value> = (0..parts)
        .map(|index| {
            (
                index.to_string(),
                json!({"items": {"$ref": format!("#/$defs/{}", index * 7 % parts)}}),
            )
        })
        .collect();
    let unevaluated = (0..30).fold(json!({}), |inner, _| {
        json!({"allOf": [inner], "unevaluatedProperties": false, "unevaluatedItems": false})
    });
    for schema in [
        json!({"$ref": "#/$defs/0", "$defs": refs}),
        unevaluated,
        json!({"enum": (0..size / 7).collect::<Vec<_>>()}),
    ] {
        let compiled = run_in_time(move || Schema::compile(&schema).is_ok());
        assert!(compiled);
    }
}

#[tokio::test]
async fn a_large_value_is_checked_on_another_thread() {
    let schema = Schema::compile(&json!({"items": {"type": "integer"}})).unwrap();
    let value = json!((0..100_000).collect::<Vec<_>>());
    assert!(schema.check(&value).unwrap_err().to_string().contains("too long"));
    assert_eq!(schema.check_async(&value).await, Ok(()));
    assert_eq!(schema.check_async(&json!([1])).await, Ok(()));
    assert!(schema.check_async(&json!(["x"])).await.is_err());
}
