//! Errors of the macros, at the place in the source that causes them.

#[test]
fn wrong_tools_are_explained() {
    trybuild::TestCases::new().compile_fail("tests/errors/*.rs");
}
