//! Tool arguments: a strict schema generated from their type, and parsing with it.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::truncate::truncate_end;

/// The maximum length of an error in bytes.
const ERROR_BYTES: usize = 600;

/// Generates a strict schema without the parts that a model does not need.
pub fn schema_of<T: JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    let object = schema.ensure_object();
    object.remove("title");
    object.remove("description");
    let mut object = object.clone();
    object.values_mut().for_each(simplify_schema);
    object
}

/// Removes `null` from optional arguments, because an omitted argument need not be null as well.
fn simplify_schema(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(simplify_schema),
        Value::Object(object) => {
            if object.get("default") == Some(&Value::Null) {
                object.remove("default");
            }
            object.remove("format");
            if let Some(Value::Array(types)) = object.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    object.insert("type".into(), only);
                }
            }
            if let Some(Value::Array(values)) = object.get_mut("enum") {
                values.retain(|value| !value.is_null());
            }
            if let Some(Value::Array(choices)) = object.get_mut("anyOf") {
                choices.retain(|choice| choice.get("type") != Some(&"null".into()));
                if let [Value::Object(only)] = choices.as_slice() {
                    let only = only.clone();
                    object.remove("anyOf");
                    object.extend(only);
                }
            }
            object.values_mut().for_each(simplify_schema);
        }
        _ => {}
    }
}

/// Parses arguments. `null` stands for an omitted argument. The error names every wrong argument
/// and the JSON type that it must have.
pub fn read_arguments<T: DeserializeOwned + JsonSchema>(
    arguments: Map<String, Value>,
) -> Result<T, String> {
    read_arguments_by(arguments, schema_of::<T>)
}

/// Parses arguments. Errors are explained with a schema that may be narrower than that of the type.
pub fn read_arguments_by<T: DeserializeOwned>(
    mut arguments: Map<String, Value>,
    schema: impl FnOnce() -> Map<String, Value>,
) -> Result<T, String> {
    arguments.retain(|_, value| !value.is_null());
    let error = match parse_arguments::<T>(arguments.clone()) {
        Ok(parsed) => return Ok(parsed),
        Err(error) => error,
    };
    let problems = find_problems(&schema(), &arguments);
    if !problems.is_empty() {
        return Err(truncate_end(&problems.join("; "), ERROR_BYTES));
    }
    // The schema does not explain the error. The wrong argument is the one without which the error
    // changes.
    let culprit = arguments.keys().find(|name| {
        let mut others = arguments.clone();
        others.remove(*name);
        parse_arguments::<T>(others).err().is_none_or(|other| other != error)
    });
    Err(match culprit {
        Some(name) => format!("the argument `{name}`: {error}"),
        None => error,
    })
}

fn parse_arguments<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| truncate_end(&error.to_string(), ERROR_BYTES))
}

/// Returns every difference between arguments and a schema: unknown, missing and wrongly typed
/// ones.
pub fn find_problems(schema: &Map<String, Value>, arguments: &Map<String, Value>) -> Vec<String> {
    let empty = Map::new();
    let known = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    let mut problems = Vec::new();
    for (name, value) in arguments {
        match known.get(name) {
            None => problems.push(format!("unknown argument `{name}`; {}", list_known(known))),
            Some(property) => {
                let wrong = find_mismatch(property, value);
                problems.extend(wrong.map(|wrong| format!("the argument `{name}` {wrong}")));
            }
        }
    }
    for name in find_missing(schema, arguments) {
        problems.push(format!("missing argument `{name}`"));
    }
    problems
}

fn list_known(known: &Map<String, Value>) -> String {
    let names: Vec<String> = known.keys().map(|name| format!("`{name}`")).collect();
    match names.is_empty() {
        true => "there are none".to_owned(),
        false => format!("the arguments are {}", names.join(", ")),
    }
}

fn find_missing<'a>(schema: &'a Map<String, Value>, object: &Map<String, Value>) -> Vec<&'a str> {
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let names = required.filter_map(Value::as_str);
    names.filter(|name| !object.contains_key(*name)).collect()
}

/// Returns the problem of a value, such as `must be an array, not a string`. `None` if the value
/// matches as far as it is checked here.
fn find_mismatch(schema: &Value, value: &Value) -> Option<String> {
    if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
        return (!choices.contains(value)).then(|| {
            let choices: Vec<String> = choices.iter().map(quote).collect();
            format!("must be {}, not {}", join_choices(&choices), quote(value))
        });
    }
    let wanted = schema.get("type").and_then(Value::as_str)?;
    if !is_type(wanted, value) {
        return Some(format!("must be {}, not {}", type_name(wanted), describe(value)));
    }
    if let (Some(minimum), Some(number)) = (schema.get("minimum"), value.as_f64())
        && minimum.as_f64().is_some_and(|minimum| number < minimum)
    {
        return Some(format!("must be at least {minimum}, not {value}"));
    }
    match value {
        Value::Array(items) => {
            let schema = schema.get("items")?;
            let (at, wrong) = items
                .iter()
                .enumerate()
                .find_map(|(at, item)| Some((at, find_mismatch(schema, item)?)))?;
            Some(format!("is wrong at item {}: it {wrong}", at + 1))
        }
        Value::Object(object) => find_field_mismatch(schema, object),
        _ => None,
    }
}

fn find_field_mismatch(schema: &Value, object: &Map<String, Value>) -> Option<String> {
    let known = schema.get("properties").and_then(Value::as_object);
    let others = schema.get("additionalProperties");
    for (name, value) in object {
        let wrong = match (known.and_then(|known| known.get(name)), others) {
            (Some(property), _) => {
                (!value.is_null()).then(|| find_mismatch(property, value)).flatten()
            }
            (None, Some(Value::Bool(false))) => {
                let names: Vec<String> =
                    known.into_iter().flatten().map(|(name, _)| format!("`{name}`")).collect();
                return Some(format!("has no field `{name}`; its fields are {}", names.join(", ")));
            }
            (None, Some(other)) => find_mismatch(other, value),
            (None, None) => None,
        };
        if let Some(wrong) = wrong {
            return Some(format!("is wrong in its field `{name}`: it {wrong}"));
        }
    }
    let missing = find_missing(schema.as_object()?, object);
    missing.first().map(|name| format!("lacks its field `{name}`"))
}

fn is_type(wanted: &str, value: &Value) -> bool {
    match wanted {
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => true,
    }
}

fn type_name(wanted: &str) -> &str {
    match wanted {
        "string" => "a string",
        "array" => "an array",
        "object" => "an object",
        "boolean" => "true or false",
        "number" => "a number",
        "integer" => "an integer",
        other => other,
    }
}

fn describe(value: &Value) -> String {
    let name = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) => return number.to_string(),
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    name.to_owned()
}

fn quote(value: &Value) -> String {
    match value {
        Value::String(text) => format!("`{}`", truncate_end(text, 80)),
        other => describe(other),
    }
}

fn join_choices(choices: &[String]) -> String {
    match choices {
        [] => "nothing".to_owned(),
        [only] => only.clone(),
        [others @ .., last] => format!("{} or {last}", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Order {
        dish: String,
        #[serde(default)]
        guests: Vec<String>,
        #[serde(default)]
        hot: bool,
        #[serde(default)]
        size: Option<Size>,
        #[serde(default)]
        prices: BTreeMap<String, u64>,
        #[serde(default)]
        place: Option<Place>,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Size {
        Small,
        Large,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Place {
        #[serde(default)]
        table: Option<u64>,
    }

    fn order(arguments: Value) -> Result<Order, String> {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        read_arguments(arguments)
    }

    #[test]
    fn null_is_the_default_of_every_optional_argument() {
        let nulls = json!({"dish": "soup", "guests": null, "hot": null, "size": null,
            "prices": null, "place": null});
        assert_eq!(order(nulls), order(json!({"dish": "soup"})));
        let inner = order(json!({"dish": "soup", "place": {"table": null}})).unwrap();
        assert_eq!(inner.place, Some(Place { table: None }));
        assert_eq!(order(json!({"dish": null})).unwrap_err(), "missing argument `dish`");
    }

    #[test]
    fn every_wrong_argument_is_named_with_its_type() {
        for (arguments, expect) in [
            (json!({"dish": 7}), "the argument `dish` must be a string, not 7"),
            (
                json!({"dish": "soup", "guests": "Ada", "hot": "Ada"}),
                "the argument `guests` must be an array, not a string; \
                 the argument `hot` must be true or false, not a string",
            ),
            (
                json!({"dish": "soup", "guests": ["Ada", 7]}),
                "the argument `guests` is wrong at item 2: it must be a string, not 7",
            ),
            (
                json!({"dish": "soup", "size": "tiny"}),
                "the argument `size` must be `small` or `large`, not `tiny`",
            ),
            (
                json!({"dish": "soup", "prices": {"soup": -1}}),
                "the argument `prices` is wrong in its field `soup`: it must be at least 0, not -1",
            ),
            (
                json!({"dish": "soup", "place": {"chair": 1}}),
                "the argument `place` has no field `chair`; its fields are `table`",
            ),
            (
                json!({"dishes": 1}),
                "unknown argument `dishes`; the arguments are `dish`, `guests`, `hot`, `size`, \
                 `prices`, `place`; missing argument `dish`",
            ),
        ] {
            let problem = order(arguments).unwrap_err();
            let sorted = |text: &str| {
                let mut words: Vec<String> =
                    text.split(' ').map(|word| word.replace([',', ';'], "")).collect();
                words.sort();
                words
            };
            // The order of the names is that of the schema, which may be sorted.
            assert_eq!(sorted(&problem), sorted(expect), "{problem}");
        }
    }
}
