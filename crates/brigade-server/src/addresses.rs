//! Tasks by what people type: a number, a name, the beginning of one.

use std::sync::Arc;

use brigade_model::address::{TaskRef, Who};
use brigade_model::ids::{RunNo, TaskNo};
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::task::TaskRow;
use brigade_runtime::Session;
use brigade_store::TaskQuery;

use crate::desk::Located;

/// How many of the newest tasks are looked through for the beginning of a name.
const LOOKED_THROUGH: usize = 10_000;
/// How different a name may be to be offered instead.
const NEAR: usize = 3;

/// The task that is meant, or a refusal that offers the nearest.
pub async fn locate(session: Session, task: TaskRef) -> Result<Located, Refusal> {
    let run = task.run;
    let refusal = match session.get(task.clone()).await {
        Ok((no, row)) => return Ok(located(session, no, run, row)),
        Err(refusal) if refusal.kind == RefusalKind::NotFound => refusal,
        Err(refusal) => return Err(refusal),
    };
    let query = TaskQuery { most: LOOKED_THROUGH, ..TaskQuery::default() };
    let all = session.history(&query).await?;
    if let Who::Named(name) = &task.who {
        match beginning_with(&all, name.as_str()).as_slice() {
            [] => {}
            [(no, row)] => {
                let (no, row) = (*no, Arc::new((*row).clone()));
                return Ok(located(session, no, run, row));
            }
            several => {
                let names: Vec<String> = several.iter().map(|(no, row)| called(*no, row)).collect();
                let names = names.join(", ");
                return Err(Refusal::invalid(format!("{name} may be any of {names}")));
            }
        }
    }
    match nearest(&all, &task) {
        Some(near) => Err(Refusal::not_found(format!("{}; did you mean {near}?", refusal.message))),
        None => Err(refusal),
    }
}

fn located(session: Session, no: TaskNo, run: Option<RunNo>, row: Arc<TaskRow>) -> Located {
    Located { session, no, run, row }
}

/// Those whose name begins so; the living ones, where there are some.
fn beginning_with<'a>(all: &'a [(TaskNo, TaskRow)], start: &str) -> Vec<(TaskNo, &'a TaskRow)> {
    let start = start.to_lowercase();
    let named = all.iter().filter(|(_, row)| {
        row.name.as_ref().is_some_and(|name| name.as_str().to_lowercase().starts_with(&start))
    });
    let named: Vec<(TaskNo, &TaskRow)> = named.map(|(no, row)| (*no, row)).collect();
    let living: Vec<_> = named.iter().filter(|(_, row)| row.is_living()).copied().collect();
    if living.is_empty() { named } else { living }
}

fn called(no: TaskNo, row: &TaskRow) -> String {
    match &row.name {
        Some(name) => format!("{} ({name})", row.address(no)),
        None => row.address(no),
    }
}

/// Names for a name and addresses for an address. A bare number is like no other: whoever typed it
/// did not mistype a word.
fn nearest(all: &[(TaskNo, TaskRow)], typed: &TaskRef) -> Option<String> {
    let text = typed.to_string().to_lowercase();
    let candidates = all.iter().rev().filter_map(|(no, row)| {
        let candidate = match &typed.who {
            Who::No(_) => return None,
            Who::Kinded(..) => row.address(*no),
            Who::Named(_) => row.name.as_ref()?.as_str().to_lowercase(),
        };
        Some((edit_distance(&candidate, &text), called(*no, row)))
    });
    let (distance, near) = candidates.min_by_key(|(distance, _)| *distance)?;
    is_near(distance, &text).then_some(near)
}

/// The one of these that is most like what was typed, if any is like it.
pub fn most_like<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, near) = known.into_iter().map(|one| (edit_distance(one, typed), one)).min()?;
    is_near(distance, typed).then_some(near)
}

/// Most of what was typed has to be right, or it is a guess at random.
fn is_near(distance: usize, typed: &str) -> bool {
    distance <= NEAR.min(typed.chars().count() / 2)
}

/// How many letters have to be put in, taken out or changed to make one of the other.
fn edit_distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (above, letter) in from.chars().enumerate() {
        let mut corner = row[0];
        row[0] = above + 1;
        for at in 0..to.len() {
            let changed = corner + usize::from(letter != to[at]);
            corner = row[at + 1];
            row[at + 1] = changed.min(corner + 1).min(row[at] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(most_like(typed, known), expect, "{typed}");
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
