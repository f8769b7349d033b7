//! `results.svg`: horizontal bars on a logarithmic scale, one group per work.

use std::fmt::Write;

use peers_harness::Work;

use crate::figures::{Figure, Figures, PeerWork};
use crate::peer_programs::{PEERS, Peer};
use crate::units::{render_bytes, render_figure, render_time};

const WIDTH: f64 = 960.0;
const PLOT_LEFT: f64 = 110.0;
const PLOT_RIGHT: f64 = 840.0;
const BAR_HEIGHT: f64 = 13.0;
const ROW_HEIGHT: f64 = 17.0;
const HEADING_HEIGHT: f64 = 24.0;
const GROUP_GAP: f64 = 12.0;
const AXIS_HEIGHT: f64 = 30.0;

/// Colours follow the theme of the reader. The background is painted, so that the text is readable
/// wherever the picture is shown.
const STYLE: &str = "<style>
text { font: 12px system-ui, sans-serif; fill: #1f2328; }
.title { font-size: 16px; font-weight: 600; }
.work { font-weight: 600; }
.axis { fill: #59636e; font-size: 10px; }
.back { fill: #ffffff; }
.grid { stroke: #d1d9e0; stroke-width: 1; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; }
  .axis { fill: #9198a1; }
  .back { fill: #0d1117; }
  .grid { stroke: #3d444d; }
}
</style>
";

/// Renders all figures: first the times, then the memory.
pub(crate) fn render(figures: &Figures) -> String {
    let mut body = String::new();
    let mut y = 40.0;
    let memory: Vec<Work> = Work::ALL.into_iter().filter(|work| work.measures_memory()).collect();
    let times: Vec<Work> = Work::ALL.into_iter().filter(|work| !work.measures_memory()).collect();
    for (works, render_tick) in
        [(times, render_time as fn(f64) -> String), (memory, render_bytes as fn(f64) -> String)]
    {
        let groups: Vec<WorkGroup> =
            works.into_iter().filter_map(|work| WorkGroup::new(work, figures)).collect();
        let Some(scale) = LogScale::over(&groups) else { continue };
        y = render_panel(&mut body, &groups, scale, y, render_tick);
    }
    let height = y + 10.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"Figures of Brigade and its peers, on a logarithmic scale\">\n{STYLE}\
         <rect class=\"back\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
         <text class=\"title\" x=\"12\" y=\"26\">The same work by Brigade and by its peers: \
         one item, logarithmic scale, shorter is better</text>\n{body}</svg>\n"
    )
}

/// The bars of one work.
struct WorkGroup {
    work: Work,
    bars: Vec<(Peer, Figure)>,
}

impl WorkGroup {
    fn new(work: Work, figures: &Figures) -> Option<Self> {
        let bar = |peer: Peer| Some((peer, figures.get(PeerWork { peer: peer.name, work })?));
        let bars: Vec<(Peer, Figure)> = PEERS.into_iter().filter_map(bar).collect();
        (!bars.is_empty()).then_some(Self { work, bars })
    }

    fn height(&self) -> f64 {
        HEADING_HEIGHT + ROW_HEIGHT * self.bars.len() as f64 + GROUP_GAP
    }
}

/// Whole decades between the lowest and the highest figure.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LogScale {
    lowest: i32,
    highest: i32,
}

impl LogScale {
    fn over(groups: &[WorkGroup]) -> Option<Self> {
        let values = groups.iter().flat_map(|group| group.bars.iter().map(|bar| bar.1.median));
        Self::over_values(values)
    }

    fn over_values(values: impl Iterator<Item = f64>) -> Option<Self> {
        let logs: Vec<f64> = values.map(|value| value.max(1.0).log10()).collect();
        let lowest = logs.iter().copied().reduce(f64::min)?.floor() as i32;
        let highest = logs.iter().copied().reduce(f64::max)?.ceil() as i32;
        Some(Self { lowest, highest: highest.max(lowest + 1) })
    }

    /// Returns the place of a value, from left to right.
    fn x(self, value: f64) -> f64 {
        let decades = f64::from(self.highest - self.lowest);
        let share = (value.max(1.0).log10() - f64::from(self.lowest)) / decades;
        PLOT_LEFT + share * (PLOT_RIGHT - PLOT_LEFT)
    }
}

/// Renders groups below a common axis, and returns the place below them.
fn render_panel(
    body: &mut String,
    groups: &[WorkGroup],
    scale: LogScale,
    top: f64,
    render_tick: fn(f64) -> String,
) -> f64 {
    let bottom = top + AXIS_HEIGHT + groups.iter().map(WorkGroup::height).sum::<f64>();
    for decade in scale.lowest..=scale.highest {
        let value = 10_f64.powi(decade);
        let x = scale.x(value);
        let (line_top, label_y, label) = (top + 18.0, top + 12.0, render_tick(value));
        let _ = writeln!(
            body,
            "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{line_top}\" x2=\"{x:.1}\" y2=\"{bottom}\"/>\
             <text class=\"axis\" x=\"{x:.1}\" y=\"{label_y}\" text-anchor=\"middle\">{label}</text>"
        );
    }
    let mut y = top + AXIS_HEIGHT;
    for group in groups {
        render_group(body, group, scale, y);
        y += group.height();
    }
    bottom
}

fn render_group(body: &mut String, group: &WorkGroup, scale: LogScale, top: f64) {
    let (name, description) = (group.work.name(), group.work.description());
    let heading_y = top + 15.0;
    let _ = writeln!(
        body,
        "<text x=\"12\" y=\"{heading_y}\"><tspan class=\"work\">{name}</tspan>: {description}</text>"
    );
    for (row, (peer, figure)) in group.bars.iter().enumerate() {
        let y = top + HEADING_HEIGHT + ROW_HEIGHT * row as f64;
        let text_y = y + 10.5;
        let end = scale.x(figure.median).max(PLOT_LEFT + 1.0);
        let _ = writeln!(
            body,
            "<text x=\"{}\" y=\"{text_y}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{PLOT_LEFT}\" y=\"{y}\" width=\"{:.1}\" height=\"{BAR_HEIGHT}\" rx=\"2\" \
             fill=\"{}\"/><text x=\"{:.1}\" y=\"{text_y}\">{}</text>",
            PLOT_LEFT - 8.0,
            peer.name,
            end - PLOT_LEFT,
            peer.colour,
            end + 6.0,
            render_figure(group.work, figure.median)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_spans_whole_decades() {
        let scale = LogScale::over_values([30.0, 4_000.0].into_iter()).unwrap();
        assert_eq!(scale, LogScale { lowest: 1, highest: 4 });
        assert_eq!(scale.x(10.0), PLOT_LEFT);
        assert_eq!(scale.x(10_000.0), PLOT_RIGHT);
    }

    #[test]
    fn equal_figures_have_a_scale() {
        let scale = LogScale::over_values([100.0].into_iter()).unwrap();
        assert_eq!(scale, LogScale { lowest: 2, highest: 3 });
    }
}
