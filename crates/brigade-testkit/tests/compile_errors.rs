//! Programs with wrong types of jobs, which the compiler refuses at the place of the mistake.
//!
//! They stand in this crate because `trybuild` builds all dependencies again, and it has few.

#[test]
fn wrong_job_types_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/errors/*.rs");
}
