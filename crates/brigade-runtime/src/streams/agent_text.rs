//! The output of an agent as its model produces it.

use std::collections::VecDeque;
use std::sync::Arc;

use brigade_agent::{AgentOutput, replay_output};
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use brigade_model::work::TaskKind;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use futures_util::{FutureExt, TryFutureExt};
use tokio::sync::watch;

use super::ResultStream;
use crate::agents::live_output::{LiveOutput, LiveRead};
use crate::performer::TaskId;
use crate::task_handle::TaskHandle;

impl<T> TaskHandle<T> {
    /// Returns the output of an agent as its model produces it, from the start of the run to its
    /// end: the steps, pieces of text, tool calls and their results.
    ///
    /// New output comes from memory, and the agent never waits for a reader. A reader that falls
    /// behind by more than 128 KiB gets [`AgentOutput::Lagged`], and then the steps that it missed
    /// from the journal. So does one that comes late, without that mark. A step from the journal is
    /// complete, but its text is one piece. Unfinished steps are stored nowhere.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use brigade_agent::AgentOutput;
    /// # use brigade_llm::scripted::{Script, ScriptedModel};
    /// # use brigade_runtime::{AgentOptions, NewTask, OneModel, Runtime};
    /// use futures_util::TryStreamExt;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = "agent *\nturn\n  say Leek soup, then bread.\n";
    /// # let model = Arc::new(ScriptedModel::new(Script::parse("demo", script)?));
    /// # let agents = AgentOptions::new(OneModel(model)).model("demo");
    /// # let runtime = Runtime::builder().agents(agents).start().await?;
    /// # let session = runtime.session("demo").await?;
    /// let agent = session.spawn(NewTask::agent("Plan the menu.")).await?;
    /// let mut output = agent.text();
    /// let mut text = String::new();
    /// while let Some(output) = output.try_next().await? {
    ///     match output {
    ///         AgentOutput::Text(piece) => text.push_str(&piece),
    ///         AgentOutput::Step { step } => println!("step {step}"),
    ///         _ => {}
    ///     }
    /// }
    /// assert_eq!(text, "Leek soup, then bread.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn text(&self) -> ResultStream<AgentOutput> {
        let task = self.clone().typed::<Json>();
        let opened = async move { TextReader::open(task).await.map(read_text) };
        opened.try_flatten_stream().boxed()
    }
}

fn read_text(reader: TextReader) -> ResultStream<AgentOutput> {
    let outputs = stream::unfold(reader, |mut reader| async move {
        let next = reader.next().await.transpose()?;
        Some((next, reader))
    });
    outputs.boxed()
}

struct TextReader {
    task: TaskHandle,
    live: Arc<LiveOutput>,
    count: watch::Receiver<u64>,
    /// Completes when the run has ended.
    run_end: BoxFuture<'static, ()>,
    has_ended: bool,
    source: TextSource,
    /// Output from the journal that comes before all other.
    stored: VecDeque<AgentOutput>,
    /// The last step that was returned, or zero.
    step: u32,
}

/// The source of the next output.
#[derive(Clone, Copy, Debug)]
enum TextSource {
    /// The output in memory, at this position.
    Live(u64),
    /// The journal: the next output is not in memory.
    Journal,
    Nothing,
}

impl TextReader {
    async fn open(task: TaskHandle) -> Result<Self, Refusal> {
        if task.kind != TaskKind::Agent {
            return Err(Refusal::invalid(format!("{} is no agent", task.address())));
        }
        let agents = task.session.runtime.inner.handlers.agents.as_ref();
        let agents = agents.ok_or_else(|| Refusal::unavailable("this runtime has no agents"))?;
        let id = TaskId { session: task.session.id(), no: task.no };
        let live = agents.live_outputs.open_for_reader(id, task.run);
        let count = live.subscribe();
        // An agent that runs now holds its output, so that it was found above. The row shows whether
        // the run has stored anything.
        let row = task.get().await?;
        let earlier = row.extras.as_ref().and_then(|extras| extras.earlier_entries).unwrap_or(0);
        if row.run == task.run && row.journal_len == earlier && row.is_alive() {
            live.mark_whole();
        }
        let source = if live.is_whole() { TextSource::Live(0) } else { TextSource::Journal };
        let session = task.session.clone();
        let no = task.no;
        let run = task.run;
        let run_end = async move { session.wait_run_end(no, run).await }.boxed();
        let stored = VecDeque::new();
        Ok(Self { task, live, count, run_end, has_ended: false, source, stored, step: 0 })
    }

    async fn next(&mut self) -> Result<Option<AgentOutput>, Refusal> {
        loop {
            if let Some(output) = self.stored.pop_front() {
                return Ok(Some(self.note_step(output)));
            }
            self.count.borrow_and_update();
            match self.source {
                TextSource::Nothing => return Ok(None),
                TextSource::Journal => {
                    if !self.read_journal().await? {
                        self.wait_for_output().await;
                    }
                }
                TextSource::Live(position) => match self.live.read(position) {
                    LiveRead::Removed => self.source = TextSource::Journal,
                    LiveRead::Item(output) => {
                        self.source = TextSource::Live(position + 1);
                        return Ok(Some(self.note_step(output)));
                    }
                    LiveRead::Later if self.has_ended => return Ok(None),
                    LiveRead::Later => self.wait_for_output().await,
                },
            }
        }
    }

    fn note_step(&mut self, output: AgentOutput) -> AgentOutput {
        if let AgentOutput::Step { step } = output {
            self.step = step;
        }
        output
    }

    async fn wait_for_output(&mut self) {
        tokio::select! {
            biased;
            // The sender is part of the output that is held here.
            _ = self.count.changed() => {}
            () = &mut self.run_end => self.has_ended = true,
        }
    }

    /// Reads the missed steps from the journal, and continues with the step after them in memory.
    /// Returns false if there is no such step yet: the current one is not stored either.
    async fn read_journal(&mut self) -> Result<bool, Refusal> {
        let has_ended = self.has_ended;
        // The step is found first: the journal then has all steps before it.
        let newest = self.live.newest_step();
        if newest.is_none() && !has_ended && self.live.end() > 0 {
            return Ok(false);
        }
        let journal = self.task.session.journal(self.task.no).await?;
        if newest.is_none() && !has_ended && self.live.end() > 0 {
            // A step has started meanwhile, which the journal may have too.
            return Ok(true);
        }
        let from = self.step.max(1);
        let before = newest.map_or(u32::MAX, |newest| newest.step);
        if self.step > 0 {
            self.stored.push_back(AgentOutput::Lagged);
        }
        let mut step = 0;
        for output in replay_output(journal, self.task.run) {
            if let AgentOutput::Step { step: next } = output {
                step = next;
            }
            if (from..before).contains(&step) {
                self.stored.push_back(output);
            }
        }
        self.source = match newest {
            Some(newest) => TextSource::Live(newest.position),
            None if has_ended => TextSource::Nothing,
            None => TextSource::Live(0),
        };
        Ok(true)
    }
}
