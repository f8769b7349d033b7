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
    /// from the journal, each as soon as the reply of the model is stored. So does one that comes
    /// late, without that mark. A step from the journal has each text in one piece. A reply that a
    /// reader missed and that was never completed is stored nowhere.
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
    changes: watch::Receiver<()>,
    /// Completes when the run has ended.
    run_end: BoxFuture<'static, ()>,
    has_ended: bool,
    source: TextSource,
    /// Output from the journal that comes before all other.
    stored: VecDeque<AgentOutput>,
    /// The first step that was not returned completely.
    next_step: u32,
    /// The step that was returned from the journal, while its rest is read from memory.
    replayed: Option<ReplayedStep>,
}

/// The source of the next output.
#[derive(Clone, Copy, Debug)]
enum TextSource {
    /// The output in memory, at this position.
    Live(u64),
    /// The journal: the next output is not in memory.
    Journal(JournalReads),
    Nothing,
}

/// The journal as far as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JournalReads {
    None,
    /// It was read after this many commits, and the current step was not there.
    AfterCommits(u64),
}

/// A step whose reply was returned from the journal.
#[derive(Debug)]
struct ReplayedStep {
    /// The ids of the tool calls whose results were returned with it.
    results: Vec<Arc<str>>,
}

impl ReplayedStep {
    /// Returns true if this output of the step was returned from the journal.
    fn takes(&mut self, output: &AgentOutput) -> bool {
        let AgentOutput::ToolResult { id, .. } = output else { return true };
        let found = self.results.iter().position(|result| result == id);
        found.map(|index| self.results.swap_remove(index)).is_some()
    }
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
        let changes = live.subscribe();
        // An agent that runs now holds its output, so that it was found above. The row shows whether
        // the run has stored anything.
        let row = task.get().await?;
        let earlier = row.extras.as_ref().and_then(|extras| extras.earlier_entries).unwrap_or(0);
        if row.run == task.run && row.journal_len == earlier && row.is_alive() {
            live.mark_whole();
        }
        let source = match live.is_whole() {
            true => TextSource::Live(0),
            false => TextSource::Journal(JournalReads::None),
        };
        let session = task.session.clone();
        let no = task.no;
        let run = task.run;
        let run_end = async move { session.wait_run_end(no, run).await }.boxed();
        Ok(Self {
            task,
            live,
            changes,
            run_end,
            has_ended: false,
            source,
            stored: VecDeque::new(),
            next_step: 1,
            replayed: None,
        })
    }

    async fn next(&mut self) -> Result<Option<AgentOutput>, Refusal> {
        loop {
            if let Some(output) = self.stored.pop_front() {
                return Ok(Some(output));
            }
            self.changes.borrow_and_update();
            match self.source {
                TextSource::Nothing => return Ok(None),
                TextSource::Journal(reads) => self.read_journal(reads).await?,
                TextSource::Live(position) => match self.live.read(position) {
                    LiveRead::Removed => {
                        self.source = TextSource::Journal(JournalReads::None);
                        // A reader that has read nothing is late, but not slow.
                        if position > 0 {
                            return Ok(Some(AgentOutput::Lagged));
                        }
                    }
                    LiveRead::Item(output) => {
                        self.source = TextSource::Live(position + 1);
                        if self.is_new(&output) {
                            return Ok(Some(output));
                        }
                    }
                    LiveRead::Later if self.has_ended => self.source = TextSource::Nothing,
                    LiveRead::Later => self.wait_for_change().await,
                },
            }
        }
    }

    /// Returns true if this output from memory was not returned from the journal.
    fn is_new(&mut self, output: &AgentOutput) -> bool {
        if let AgentOutput::Step { step } = output {
            self.next_step = *step;
            self.replayed = None;
        }
        !self.replayed.as_mut().is_some_and(|replayed| replayed.takes(output))
    }

    /// Waits for new output, a commit or the end of the run.
    async fn wait_for_change(&mut self) {
        tokio::select! {
            biased;
            // The sender is part of the output that is held here.
            _ = self.changes.changed() => {}
            () = &mut self.run_end, if !self.has_ended => self.has_ended = true,
        }
    }

    /// Reads the missed steps from the journal, and continues in memory after them. Waits if the
    /// current step is neither stored nor in memory from its start.
    async fn read_journal(&mut self, reads: JournalReads) -> Result<(), Refusal> {
        // Both are read before the journal, which then has everything that was removed from memory.
        let has_ended = self.has_ended;
        let extent = self.live.extent();
        let in_memory = extent.step_in_memory();
        let this_read = JournalReads::AfterCommits(extent.commits);
        if !has_ended && in_memory.is_none() && reads == this_read {
            self.wait_for_change().await;
            return Ok(());
        }
        let journal = self.task.session.journal(self.task.no).await?;
        if extent.newest_step.is_none() && self.live.extent().newest_step.is_some() {
            // A step has started meanwhile, which the journal may have too.
            return Ok(());
        }
        let steps = StoredSteps::new(replay_output(journal, self.task.run));
        if let Some(step) = in_memory {
            self.return_stored(steps, step.step.saturating_sub(1));
            self.source = TextSource::Live(step.position);
            return Ok(());
        }
        if has_ended {
            self.return_stored(steps, u32::MAX);
            self.source = TextSource::Nothing;
            return Ok(());
        }
        let current = extent.newest_step.map_or(steps.last, |newest| newest.step);
        if steps.last < current {
            self.return_stored(steps, current - 1);
            self.next_step = current;
            self.source = TextSource::Journal(this_read);
            return Ok(());
        }
        let has_step = steps.last > 0;
        let results = steps.results_of(current);
        self.return_stored(steps, current);
        self.next_step = current.max(1);
        self.replayed = has_step.then_some(ReplayedStep { results });
        self.source = TextSource::Live(extent.first);
        Ok(())
    }

    /// Returns the steps from the first incomplete one up to this one.
    fn return_stored(&mut self, steps: StoredSteps, last: u32) {
        for StoredOutput { step, output } in steps.outputs {
            if (self.next_step..=last).contains(&step) {
                self.stored.push_back(output);
            }
        }
    }
}

/// The output of a run in the journal.
struct StoredSteps {
    outputs: Vec<StoredOutput>,
    /// The last step whose reply is stored, or zero.
    last: u32,
}

struct StoredOutput {
    step: u32,
    output: AgentOutput,
}

impl StoredSteps {
    fn new(replayed: Vec<AgentOutput>) -> Self {
        let mut outputs = Vec::with_capacity(replayed.len());
        let mut last = 0;
        for output in replayed {
            if let AgentOutput::Step { step } = output {
                last = step;
            }
            outputs.push(StoredOutput { step: last, output });
        }
        Self { outputs, last }
    }

    /// Returns the ids of the tool calls of a step whose results are stored.
    fn results_of(&self, step: u32) -> Vec<Arc<str>> {
        let outputs = self.outputs.iter().filter(|stored| stored.step == step);
        let results = outputs.filter_map(|stored| match &stored.output {
            AgentOutput::ToolResult { id, .. } => Some(id.clone()),
            _ => None,
        });
        results.collect()
    }
}
