//! The part of the demonstration that agents play: a chef and three cooks, by a script.

use std::fs;
use std::time::{Duration, Instant};

use brigade_server::requests::{Below, Run, Transcript};
use brigade_server::wire::As;
use brigade_server::{Client, TaskInfo};

use super::{SESSION, Seen, Stage, seen, target};
use crate::exit::Failure;

const SCRIPT: &str = include_str!("chef.script");
const COOKS: [&str; 3] = ["Soup", "Roast", "Dessert"];
/// What the chef tells one of them.
const STEERED: &str = "A guest cannot eat nuts.";
const PATIENCE: Duration = Duration::from_secs(10);

impl Stage {
    /// Starts the chef, and waits until it and the cooks are in the middle of things.
    pub(super) async fn hire(&self, client: &Client) -> Result<Vec<TaskInfo>, Failure> {
        let script = self.folder.join("chef.script");
        fs::write(&script, SCRIPT)?;
        let run = Run {
            name: Some("Chef".to_owned()),
            model: Some(format!("script:{}", script.display())),
            cwd: Some(self.folder.display().to_string()),
            ..Run::new(SESSION, "Cook a dinner of three courses.")
        };
        let chef = client.ask(run).await?.task;
        let eyes = self.operator().await?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let agents = self.agents(&eyes, &chef).await?;
            if let [chef, soup, _, dessert] = agents.as_slice()
                && self.said(&eyes, chef).await?.contains("was sent to Dessert")
                && self.said(&eyes, soup).await?.contains("exit code 0")
                && !self.said(&eyes, dessert).await?.contains(STEERED)
            {
                let about =
                    ["hands a dinner to three cooks", "has made its stock", "takes its time"];
                let about = about.into_iter().chain(["is told that a guest cannot eat nuts"]);
                for (agent, about) in agents.iter().zip(about) {
                    self.say(format!("  {:<11} {:<9} {about}", agent.address, agent.label()))?;
                }
                return Ok(agents);
            }
            if Instant::now() > deadline {
                let said = self.said(&eyes, &chef).await?;
                return Err(Failure::broken(format!("the chef did not come to its cooks: {said}")));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits for the dinner, and looks at how it came to be. `before` is how the agents were before the
    /// kill, `found` what the next daemon had.
    pub(super) async fn dinner(
        &self,
        client: &Client,
        before: &[TaskInfo],
        found: &[TaskInfo],
    ) -> Result<[Seen; 3], Failure> {
        let ended = self.wait(client, &before[0]).await?;
        let result: Option<String> = ended.result.and_then(|result| result.decode().ok());
        self.say(format!("\nChef: {}", result.as_deref().unwrap_or(&ended.state)))?;
        let eyes = self.operator().await?;
        let after = self.agents(&eyes, &before[0]).await?;
        Ok([
            self.went_on(before, found, &after),
            self.delegated_once(&eyes, &after).await?,
            self.steered(&eyes, &after).await?,
        ])
    }

    /// All of them lived after the kill as the same run, came to a good end, and no step was done twice.
    fn went_on(&self, before: &[TaskInfo], found: &[TaskInfo], after: &[TaskInfo]) -> Seen {
        let went_on = |agent: &&TaskInfo| {
            let same = |other: &&TaskInfo| other.address == agent.address;
            let lived = found.iter().find(same).is_some_and(|found| found.living);
            let ended = after.iter().find(same);
            let ended = ended.filter(|ended| ended.run == 1 && ended.attempt > agent.attempt);
            lived && ended.is_some_and(|ended| ended.state == "succeeded")
        };
        let went_on = before.iter().filter(went_on).count();
        let stock = fs::read_to_string(self.folder.join("pot")).unwrap_or_default();
        let times = match stock.lines().count() {
            1 => "once".to_owned(),
            times => format!("{times} times"),
        };
        let what = format!("{went_on} went on from their last step; stock made {times}");
        seen("agents", went_on == before.len() && stock == "stock\n", what)
    }

    /// By what the store has of the children, and by what the chef's conversation has of their results.
    async fn delegated_once(&self, client: &Client, after: &[TaskInfo]) -> Result<Seen, Failure> {
        let names: Vec<&str> = after.iter().skip(1).map(TaskInfo::label).collect();
        let said = self.said(client, &after[0]).await?;
        let results = COOKS.map(|cook| said.matches(&format!("name=\"{cook}\" outcome=")).count());
        let kept = names == COOKS && results == [1, 1, 1];
        let what = match kept {
            true => "3 sub-agents, 3 results: each once".to_owned(),
            false => format!("sub-agents {names:?}, their results {results:?} times"),
        };
        Ok(seen("delegation", kept, what))
    }

    async fn steered(&self, client: &Client, after: &[TaskInfo]) -> Result<Seen, Failure> {
        let dessert = after.iter().find(|agent| agent.label() == "Dessert");
        let said = match dessert {
            Some(dessert) => self.said(client, dessert).await?,
            None => String::new(),
        };
        let heard = said.matches(STEERED).count();
        let kept = heard == 1 && said.contains("without nuts") && !said.contains("Walnut");
        let what = match heard {
            1 => "told before the kill, Dessert heard it once, after it".to_owned(),
            times => format!("Dessert heard {times} times what it was told"),
        };
        Ok(seen("steering", kept, what))
    }

    /// A client sees only what it started itself; the operator sees what came of it.
    pub(super) async fn operator(&self) -> Result<Client, Failure> {
        Ok(Client::connect(&self.places, As::Operator).await?)
    }

    /// The chef and its cooks.
    async fn agents(&self, client: &Client, chef: &TaskInfo) -> Result<Vec<TaskInfo>, Failure> {
        let mut tasks = client.ask(Below { target: target(chef) }).await?;
        tasks.retain(|task| task.is_agent());
        Ok(tasks)
    }

    async fn said(&self, client: &Client, agent: &TaskInfo) -> Result<String, Failure> {
        let asked = Transcript { target: target(agent), from: 0, max_bytes: None };
        Ok(client.ask(asked).await?.unwrap_or_default().text)
    }
}
