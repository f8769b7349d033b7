//! What somebody may have meant to type.

/// So many letters may be wrong, however long it is.
const DISTANCE_MAX: usize = 3;

/// The one of these that is most like what was typed, if any is like it.
pub fn find_nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = typed.to_lowercase();
    let known = known.into_iter().map(|one| (edit_distance(&one.to_lowercase(), &lower), one));
    let (distance, near) = known.min()?;
    is_near(distance, typed).then_some(near)
}

/// How many letters have to be put in, taken out, changed or swapped to make one of the other.
pub fn edit_distance(from: &str, to: &str) -> usize {
    strsim::osa_distance(from, to)
}

/// Most of what was typed has to be right, or it is a guess at random; so is any for a letter or two.
pub fn is_near(distance: usize, typed: &str) -> bool {
    let letters = typed.chars().count();
    letters > 2 && distance <= DISTANCE_MAX.min(letters / 2)
}

/// `; did you mean X?`, or nothing.
pub fn did_you_mean<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let near = find_nearest(typed, known);
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
            assert_eq!(find_nearest(typed, known), expect, "{typed}");
        }
    }

    #[test]
    fn only_what_is_mostly_right_is_offered() {
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
    fn distances() {
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
