//! The results as Markdown tables.

use std::fmt::Write;

use peers_harness::Work;

use crate::figures::{Figures, PeerWork};
use crate::peer_programs::PEERS;
use crate::units::{render_digits, render_figure, render_time};

/// Renders the medians of all works, one column per peer.
pub(crate) fn summary(figures: &Figures) -> String {
    table(figures, |key| figures.get(key).map(|figure| render_figure(key.work, figure.median)))
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

/// Renders the reasons of all missing figures.
pub(crate) fn missing(figures: &Figures) -> String {
    let mut text = String::from("| work | peer | reason |\n|---|---|---|\n");
    for work in Work::ALL {
        for peer in PEERS {
            if let Some(reason) = figures.reason(PeerWork { peer: peer.name, work }) {
                let _ = writeln!(text, "| `{}` | {} | {reason} |", work.name(), peer.name);
            }
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
        assert!(missing(&figures()).contains("| `agent` | koda | no agents |"));
    }
}
