//! Suggestions for mistyped names.

/// The maximum number of wrong letters, for words of any length.
const DISTANCE_MAX: usize = 3;

/// Returns the known name nearest to the typed one, if any is near enough.
pub fn find_nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = typed.to_lowercase();
    let known = known.into_iter().map(|name| (edit_distance(&name.to_lowercase(), &lower), name));
    let (distance, near) = known.min()?;
    is_near(distance, typed).then_some(near)
}

/// Returns the number of letters to insert, delete, replace or swap.
pub fn edit_distance(from: &str, to: &str) -> usize {
    strsim::osa_distance(from, to)
}

/// Returns true if at least half of the typed word is right. Nothing is near to one or two letters:
/// any suggestion would be a guess.
pub fn is_near(distance: usize, typed: &str) -> bool {
    let letters = typed.chars().count();
    letters > 2 && distance <= DISTANCE_MAX.min(letters / 2)
}

/// Returns `; did you mean X?`, or an empty text.
pub fn did_you_mean<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let near = find_nearest(typed, known);
    near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found() {
        let known = ["name", "description", "model", "max_output"];
        for (typed, expect) in [
            ("nmae", Some("name")),
            ("Description", Some("description")),
            ("max-output", Some("max_output")),
            ("zzz", None),
            ("temperature", None),
        ] {
            assert_eq!(find_nearest(typed, known), expect, "{typed}");
        }
    }

    #[test]
    fn only_names_that_are_mostly_right_are_suggested() {
        let known = ["Server", "Test", "go"];
        for (typed, expect) in [
            ("Sevrer", Some("Server")),
            ("Tets", Some("Test")),
            ("og", None),
            ("x", None),
            ("", None),
            ("Fool", None),
        ] {
            assert_eq!(find_nearest(typed, known), expect, "{typed}");
        }
    }

    #[test]
    fn edit_distances() {
        for (from, to, expect) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("abc", "", 3),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("process:3", "proces:3", 1),
        ] {
            assert_eq!(edit_distance(from, to), expect, "{from} {to}");
        }
    }
}
