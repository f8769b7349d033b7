//! What somebody may have meant to type.

/// The one of these that is most like what was typed, if any is like it.
pub fn most_like<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |one: &str| strsim::osa_distance(&typed.to_lowercase(), &one.to_lowercase());
    let near = known.into_iter().map(|one| (distance(one), one)).min()?;
    (near.0 <= 3.min(typed.chars().count() / 2 + 1)).then_some(near.1)
}

/// `; did you mean X?`, or nothing.
pub fn did_you_mean<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let near = most_like(typed, known);
    near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_is_found() {
        let known = ["name", "description", "model", "max_output"];
        for (typed, expect) in [
            ("nmae", Some("name")),
            ("Description", Some("description")),
            ("max-output", Some("max_output")),
            ("zzz", None),
            ("temperature", None),
        ] {
            assert_eq!(most_like(typed, known), expect, "{typed}");
        }
    }
}
