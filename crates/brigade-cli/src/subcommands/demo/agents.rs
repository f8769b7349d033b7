//! The part of the demonstration that agents play: a chef and three cooks, by a script.

use std::fs;
use std::time::{Duration, Instant};

use brigade_server::frames::ClientRole;
use brigade_server::requests::{ListSubtreeRequest, ReadTranscriptRequest, RunRequest};
use brigade_server::{DaemonConnection, TaskInfo};

use super::{DemoStage, PromiseCheck, SESSION, new_check, task_target};
use crate::exit_code::CliError;

const SCRIPT: &str = include_str!("chef.script");
const COOKS: [&str; 3] = ["Soup", "Roast", "Dessert"];
/// What the chef tells one of them.
const STEERING_MESSAGE: &str = "A guest cannot eat nuts.";
const AGENTS_TIMEOUT: Duration = Duration::from_secs(10);

impl DemoStage {
    /// Starts the chef, and waits until it and the cooks are in the middle of things.
    pub(super) async fn start_agents(
        &self,
        client: &DaemonConnection,
    ) -> Result<Vec<TaskInfo>, CliError> {
        let script = self.demo_dir.join("chef.script");
        fs::write(&script, SCRIPT)?;
        let run = RunRequest {
            name: Some("Chef".to_owned()),
            model: Some(format!("script:{}", script.display())),
            cwd: Some(self.demo_dir.display().to_string()),
            ..RunRequest::new(SESSION, "Cook a dinner of three courses.")
        };
        let chef = client.call(run).await?.task;
        let eyes = self.connect_operator().await?;
        let deadline = Instant::now() + AGENTS_TIMEOUT;
        loop {
            let agents = self.list_agents(&eyes, &chef).await?;
            if let [chef, soup, _, dessert] = agents.as_slice()
                && self.read_transcript(&eyes, chef).await?.contains("was sent to Dessert")
                && self.read_transcript(&eyes, soup).await?.contains("exit code 0")
                && !self.read_transcript(&eyes, dessert).await?.contains(STEERING_MESSAGE)
            {
                let about =
                    ["hands a dinner to three cooks", "has made its stock", "takes its time"];
                let about = about.into_iter().chain(["is told that a guest cannot eat nuts"]);
                for (agent, about) in agents.iter().zip(about) {
                    self.print_line(format!(
                        "  {:<11} {:<9} {about}",
                        agent.address,
                        agent.label()
                    ))?;
                }
                return Ok(agents);
            }
            if Instant::now() > deadline {
                let said = self.read_transcript(&eyes, &chef).await?;
                return Err(CliError::internal(format!(
                    "the chef did not come to its cooks: {said}"
                )));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits for the dinner, and looks at how it came to be. `before` is how the agents were before the
    /// kill, `found` what the next daemon had.
    pub(super) async fn check_agents(
        &self,
        client: &DaemonConnection,
        before: &[TaskInfo],
        found: &[TaskInfo],
    ) -> Result<[PromiseCheck; 3], CliError> {
        let ended = self.wait_for_task(client, &before[0]).await?;
        let result: Option<String> = ended.result.and_then(|result| result.decode().ok());
        self.print_line(format!("\nChef: {}", result.as_deref().unwrap_or(&ended.state)))?;
        let eyes = self.connect_operator().await?;
        let after = self.list_agents(&eyes, &before[0]).await?;
        Ok([
            self.check_resumed(before, found, &after),
            self.check_delegation(&eyes, &after).await?,
            self.check_steering(&eyes, &after).await?,
        ])
    }

    /// All of them lived after the kill as the same run, came to a good end, and no step was done twice.
    fn check_resumed(
        &self,
        before: &[TaskInfo],
        found: &[TaskInfo],
        after: &[TaskInfo],
    ) -> PromiseCheck {
        let went_on = |agent: &&TaskInfo| {
            let same = |other: &&TaskInfo| other.address == agent.address;
            let lived = found.iter().find(same).is_some_and(|found| found.alive);
            let ended = after.iter().find(same);
            let ended = ended.filter(|ended| ended.run == 1 && ended.attempt > agent.attempt);
            lived && ended.is_some_and(|ended| ended.state == "succeeded")
        };
        let went_on = before.iter().filter(went_on).count();
        let stock = fs::read_to_string(self.demo_dir.join("pot")).unwrap_or_default();
        let times = match stock.lines().count() {
            1 => "once".to_owned(),
            times => format!("{times} times"),
        };
        let what = format!("{went_on} went on from their last step; stock made {times}");
        new_check("agents", went_on == before.len() && stock == "stock\n", what)
    }

    /// By what the store has of the children, and by what the chef's conversation has of their results.
    async fn check_delegation(
        &self,
        client: &DaemonConnection,
        after: &[TaskInfo],
    ) -> Result<PromiseCheck, CliError> {
        let names: Vec<&str> = after.iter().skip(1).map(TaskInfo::label).collect();
        let said = self.read_transcript(client, &after[0]).await?;
        let results = COOKS.map(|cook| said.matches(&format!("name=\"{cook}\" outcome=")).count());
        let kept = names == COOKS && results == [1, 1, 1];
        let what = match kept {
            true => "3 sub-agents, 3 results: each once".to_owned(),
            false => format!("sub-agents {names:?}, their results {results:?} times"),
        };
        Ok(new_check("delegation", kept, what))
    }

    async fn check_steering(
        &self,
        client: &DaemonConnection,
        after: &[TaskInfo],
    ) -> Result<PromiseCheck, CliError> {
        let dessert = after.iter().find(|agent| agent.label() == "Dessert");
        let said = match dessert {
            Some(dessert) => self.read_transcript(client, dessert).await?,
            None => String::new(),
        };
        let heard = said.matches(STEERING_MESSAGE).count();
        let kept = heard == 1 && said.contains("without nuts") && !said.contains("Walnut");
        let what = match heard {
            1 => "told before the kill, Dessert heard it once, after it".to_owned(),
            times => format!("Dessert heard {times} times what it was told"),
        };
        Ok(new_check("steering", kept, what))
    }

    /// A client sees only what it started itself; the operator sees what came of it.
    pub(super) async fn connect_operator(&self) -> Result<DaemonConnection, CliError> {
        Ok(DaemonConnection::connect(&self.state_dir, ClientRole::Operator).await?)
    }

    /// The chef and its cooks.
    async fn list_agents(
        &self,
        client: &DaemonConnection,
        chef: &TaskInfo,
    ) -> Result<Vec<TaskInfo>, CliError> {
        let mut tasks = client.call(ListSubtreeRequest { target: task_target(chef) }).await?;
        tasks.retain(|task| task.is_agent());
        Ok(tasks)
    }

    async fn read_transcript(
        &self,
        client: &DaemonConnection,
        agent: &TaskInfo,
    ) -> Result<String, CliError> {
        let asked = ReadTranscriptRequest { target: task_target(agent), from: 0, max_bytes: None };
        Ok(client.call(asked).await?.unwrap_or_default().text)
    }
}
