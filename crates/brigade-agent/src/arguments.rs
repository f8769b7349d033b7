//! The arguments of a tool: a strict schema from their type, and reading them by it.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Strict, and without what says nothing to a model.
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
    object.values_mut().for_each(plain);
    object
}

/// An argument that may be left out is one that is not required: it need not be null as well.
fn plain(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(plain),
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
            object.values_mut().for_each(plain);
        }
        _ => {}
    }
}

/// Reads arguments. The error names the one that is wrong.
pub fn read<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, String> {
    let error = match parse::<T>(arguments.clone()) {
        Ok(read) => return Ok(read),
        Err(error) => error,
    };
    if error.starts_with("unknown field") || error.starts_with("missing field") {
        return Err(error.replace("field", "argument"));
    }
    // It is the one without which there would be another complaint, or none.
    let culprit = arguments.keys().find(|name| {
        let mut others = arguments.clone();
        others.remove(*name);
        parse::<T>(others).err().is_none_or(|other| other != error)
    });
    Err(match culprit {
        Some(name) => format!("the argument `{name}`: {error}"),
        None => error,
    })
}

fn parse<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| {
        let mut message = error.to_string().replace("expected f64", "expected a number");
        if message.len() > 600 {
            message.truncate(message.floor_char_boundary(600));
            message.push_str("..");
        }
        message
    })
}
