//! Databases that are opened or refused. A refusal changes nothing.

use brigade_model::ids::Lane;
use brigade_postgres::{PostgresOptions, PostgresStore};
use brigade_store::{Store, StoreError};

use crate::support::SERVER;

/// Opens a store that must be refused, and returns the text of the error.
async fn refused(options: &PostgresOptions, is_expected: fn(&StoreError) -> bool) -> String {
    let error = PostgresStore::open(options).await.expect_err("it is refused");
    assert!(is_expected(&error), "{error:?}");
    error.to_string()
}

fn is_corrupt(error: &StoreError) -> bool {
    matches!(error, StoreError::Corrupt(_))
}

fn is_unavailable(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(_))
}

#[tokio::test]
async fn several_nodes_create_the_schema_at_once() {
    let options = SERVER.new_schema();
    let open = || PostgresStore::open(&options);
    let opened = tokio::join!(open(), open(), open(), open(), open());
    let stores = [opened.0, opened.1, opened.2, opened.3, opened.4];
    for (number, store) in stores.into_iter().enumerate() {
        let lane = store.expect("each of them opens it").open_lane().await.unwrap();
        assert_eq!(lane, Lane(number.try_into().unwrap()));
    }
}

#[tokio::test]
async fn a_schema_of_another_program_is_refused_and_not_changed() {
    for (name, table) in [("other_1", "recipes"), ("other_2", "meta")] {
        SERVER.execute(&format!("CREATE SCHEMA {name}; CREATE TABLE {name}.{table}(dish text)"));
        let options = SERVER.new_schema().schema(name).unwrap();
        let error = refused(&options, is_corrupt).await;
        assert!(error.contains(name) && error.contains("another program"), "{error}");
        SERVER.execute(&format!("DROP TABLE {name}.{table}; DROP SCHEMA {name}"));
    }
}

#[tokio::test]
async fn a_newer_version_is_refused() {
    let options = SERVER.new_schema().schema("newer").unwrap();
    drop(PostgresStore::open(&options).await.unwrap());
    SERVER.execute("UPDATE newer.meta SET value = 99 WHERE name = 'version'");
    let error = refused(&options, |error| matches!(error, StoreError::Newer { .. })).await;
    assert!(error.contains("version 99"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_without_the_password() {
    let url = "postgres://ada:secret@127.0.0.1:1/kitchen";
    let options = PostgresOptions::from_url(url).unwrap();
    let error = refused(&options, is_unavailable).await;
    assert!(error.contains("cannot connect") && error.contains("refused"), "{error}");
    assert!(!error.contains("secret"), "{error}");
}

#[tokio::test]
async fn an_unknown_user_is_refused() {
    let options = PostgresOptions::from_url(&SERVER.url_of("nobody_knows")).unwrap();
    let error = refused(&options, is_unavailable).await;
    assert!(error.contains("nobody_knows"), "{error}");
}

#[tokio::test]
async fn missing_rights_are_reported() {
    SERVER.execute("CREATE ROLE guest LOGIN");
    let options =
        PostgresOptions::from_url(&SERVER.url_of("guest")).unwrap().schema("denied").unwrap();
    let error = refused(&options, is_unavailable).await;
    assert!(error.contains("permission denied"), "{error}");
    // A schema that somebody else has created can be read, but not written.
    let created = SERVER.new_schema().schema("created").unwrap();
    drop(PostgresStore::open(&created).await.unwrap());
    let options =
        PostgresOptions::from_url(&SERVER.url_of("guest")).unwrap().schema("created").unwrap();
    let error = refused(&options, is_unavailable).await;
    assert!(error.contains("permission denied"), "{error}");
}
