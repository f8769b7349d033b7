//! The OpenAPI document, as a snapshot: a change of the API is a change of `openapi.json`.

use std::path::Path;

/// Compares the document with the file. Set `UPDATE_OPENAPI=1` to write the file. Then
/// `node clients/generate.js` writes the types of the clients and of the dashboard.
#[test]
fn the_document_is_the_stored_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    let document = format!("{}\n", brigade_server::http::openapi_document());
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::write(&path, &document).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == document,
        "the API has changed: review it, write {} with UPDATE_OPENAPI=1, and run \
         `node clients/generate.js`",
        path.display()
    );
}
