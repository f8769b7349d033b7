//! The results as Markdown tables.

use std::fmt::Write;

use peers_harness::Work;

use crate::figures::{Figures, PeerWork};
use crate::peer_programs::PEERS;
use crate::units::{render_digits, render_figure, render_time};

/// Renders the medians of all works, one column per peer.
pub(crate) fn summary(figures: &Figures) -> String {
    table(figures, |key| {
        let figure = figures.get(key)?;
        let text = render_figure(key.work, figure.median);
        let is_whole = figure.count == key.work.count();
        Some(if is_whole { text } else { format!("{text} (n = {})", figure.count) })
    })
}

/// Renders the CPU times of all works, one column per peer.
pub(crate) fn cpu_times(figures: &Figures) -> String {
    table(figures, |key| figures.get(key).map(|figure| render_time(figure.cpu_ns)))
}

/// Renders the lowest and the highest round of all works, one column per peer.
pub(crate) fn spreads(figures: &Figures) -> String {
    table(figures, |key| {
        let figure = figures.get(key)?;
        let lowest = render_figure(key.work, figure.lowest);
        let highest = render_figure(key.work, figure.highest);
        Some(format!("{lowest} to {highest}"))
    })
}

/// Renders a row per work and a column per peer that has a figure.
fn table(figures: &Figures, cell: impl Fn(PeerWork) -> Option<String>) -> String {
    let measured = |peer: &'static str| {
        Work::ALL.into_iter().any(|work| figures.get(PeerWork { peer, work }).is_some())
    };
    let peers: Vec<&str> =
        PEERS.iter().map(|peer| peer.name).filter(|name| measured(name)).collect();
    let mut text = String::from("| work | count |");
    for peer in &peers {
        let _ = write!(text, " {peer} |");
    }
    text.push_str("\n|---|--:|");
    text.push_str(&"--:|".repeat(peers.len()));
    text.push('\n');
    for work in Work::ALL {
        let cells: Vec<Option<String>> =
            peers.iter().map(|peer| cell(PeerWork { peer, work })).collect();
        if cells.iter().all(Option::is_none) {
            continue;
        }
        let _ = write!(text, "| `{}` | {} |", work.name(), work.count());
        for cell in cells {
            let _ = write!(text, " {} |", cell.as_deref().unwrap_or("-"));
        }
        text.push('\n');
    }
    text
}

/// Renders each work at which a peer has a lower figure than Brigade.
pub(crate) fn losses(figures: &Figures) -> String {
    let mut text = String::from(
        "| work | peer | its figure | Brigade | Brigade needs |\n|---|---|--:|--:|--:|\n",
    );
    for (work, peer) in works_and_rivals() {
        let brigade = figures.get(PeerWork { peer: PEERS[0].name, work });
        let rival = figures.get(PeerWork { peer, work });
        let (Some(brigade), Some(rival)) = (brigade, rival) else { continue };
        if rival.median >= brigade.median {
            continue;
        }
        let _ = writeln!(
            text,
            "| `{}` | {peer} | {} | {} | {} times as much |",
            work.name(),
            render_figure(work, rival.median),
            render_figure(work, brigade.median),
            render_digits(brigade.median / rival.median)
        );
    }
    text
}

/// Renders the reasons of all missing figures, one row per peer and reason.
pub(crate) fn missing(figures: &Figures) -> String {
    let mut text = String::from("| peer | works | reason |\n|---|---|---|\n");
    for peer in PEERS {
        let reasons = Work::ALL.into_iter().filter_map(|work| {
            let reason = figures.reason(PeerWork { peer: peer.name, work })?;
            Some((work.name(), reason))
        });
        let mut rows: Vec<(Vec<String>, &str)> = Vec::new();
        for (work, reason) in reasons {
            let work = format!("`{work}`");
            match rows.iter_mut().find(|row| row.1 == reason) {
                Some(row) => row.0.push(work),
                None => rows.push((vec![work], reason)),
            }
        }
        for (works, reason) in rows {
            let _ = writeln!(text, "| {} | {} | {reason} |", peer.name, works.join(", "));
        }
    }
    text
}

fn works_and_rivals() -> impl Iterator<Item = (Work, &'static str)> {
    Work::ALL.into_iter().flat_map(|work| PEERS[1..].iter().map(move |peer| (work, peer.name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use peers_harness::PeerReport;

    fn report(peer: &str, wall_ns: u64) -> PeerReport {
        let line = format!(
            r#"{{"peer":"{peer}","work":"agent","count":10,"wall_ns":{wall_ns},"cpu_ns":50}}"#
        );
        serde_json::from_str(&line).unwrap()
    }

    fn figures() -> Figures {
        let work = Work::Agent;
        let mut figures = Figures::default();
        figures.add(PeerWork { peer: "brigade", work }, &report("brigade", 4_000));
        figures.add(PeerWork { peer: "tokio", work }, &report("tokio", 1_000));
        figures.add(PeerWork { peer: "awaken", work }, &report("awaken", 9_000));
        figures.exclude(PeerWork { peer: "koda", work }, "no agents".to_owned());
        figures
    }

    #[test]
    fn only_faster_peers_are_losses() {
        let text = losses(&figures());
        assert!(
            text.contains("| `agent` | tokio | 100 ns | 400 ns | 4.00 times as much |"),
            "{text}"
        );
        assert!(!text.contains("awaken"), "{text}");
    }

    #[test]
    fn a_peer_without_any_figure_has_no_column() {
        let text = summary(&figures());
        assert!(text.starts_with("| work | count | brigade | tokio | awaken |\n"), "{text}");
        assert!(missing(&figures()).contains("| koda | `agent` | no agents |"));
    }

    #[test]
    fn works_with_the_same_reason_share_a_row() {
        let mut figures = figures();
        let key = PeerWork { peer: "koda", work: Work::Messages };
        figures.exclude(key, "no agents".to_owned());
        assert!(missing(&figures).contains("| koda | `messages`, `agent` | no agents |"));
    }

    #[test]
    fn a_smaller_count_is_shown() {
        assert!(summary(&figures()).contains("| `agent` | 200 | 400 ns (n = 10) |"));
    }
}
