// The states of a task over time, as far as this page knows them. A list row tells only the present
// state and the start of the run; events tell the rest. Time between that nobody told is `UNSEEN`.

/** @import {Change, Run, Task} from './api_types.d.ts' */

/** The state of time whose state the page does not know. */
export const UNSEEN = 'unseen';
/** The look of the time in which earlier runs of which nothing is known took place. */
export const PAST = 'past';
/** Events that change the state of a task. */
export const STATE_EVENTS = [
  'spawned',
  'started',
  'queued',
  'recovered',
  'run_opened',
  'suspended',
  'stop_requested',
  'closing',
  'ended',
];
/** The most parts of a run that are remembered. The oldest ones become unseen. */
const MAX_PARTS = 200;

/**
 * A stretch of time in one state, until the next part or the end of the run.
 * @typedef {{state: string, from: number}} TimelinePart
 *
 * One run. `to` is `NaN` while it is alive.
 * @typedef {{run: number, to: number, outcome: string, parts: TimelinePart[]}} RunSpan
 *
 * A piece of a bar. `look` is a state, an outcome, `UNSEEN` or `PAST`. A piece without length marks an end.
 * @typedef {{look: string, from: number, to: number, run: number}} Stretch
 */

export class TaskTimeline {
  /** The runs that are known, the first one first. @type {RunSpan[]} */
  runs = [];
  /** The events of all states are included. */
  isComplete = false;

  /** @param {Task} task */
  constructor(task) {
    this.spawnedAt = Date.parse(task.spawned_at);
    this.runs.push(describeRun(task));
  }

  /** The present or last run. */
  get latest() {
    return this.runs[this.runs.length - 1];
  }

  /** The last known state, or the outcome. */
  get state() {
    const { to, outcome, parts } = this.latest;
    return Number.isNaN(to) ? parts[parts.length - 1].state : outcome;
  }

  /** True if nothing is known about some earlier run. */
  get hasMissingRuns() {
    return this.latest.run > this.runs.length;
  }

  /** Includes a row of a list, which may be newer than all events. @param {Task} task */
  sync(task) {
    const row = describeRun(task);
    const { latest } = this;
    if (row.run < latest.run) return;
    if (row.run > latest.run) {
      // The end of a run that nobody told is not known.
      if (Number.isNaN(latest.to)) this.runs.pop();
      this.runs.push(row);
      this.isComplete = false;
      return;
    }
    const last = latest.parts[latest.parts.length - 1];
    const lastOfRow = row.parts[row.parts.length - 1];
    const isSame = last.state === lastOfRow.state && !(lastOfRow.from > last.from);
    if (task.alive && !isSame && lastOfRow.from >= last.from) {
      // Between the last known change and the present state, anything may have happened.
      this.#push(UNSEEN, last.from);
      this.#push(lastOfRow.state, lastOfRow.from);
      this.isComplete = false;
    }
    if (!task.alive && !(latest.to === row.to)) {
      this.#push(UNSEEN, last.from);
      latest.to = row.to;
      latest.outcome = row.outcome;
      this.isComplete = false;
    }
  }

  /** Includes an event of the feed. Events that the rows included already are skipped. @param {Change} change */
  apply(change) {
    const at = Date.parse(change.at);
    const { latest } = this;
    const known = Number.isNaN(latest.to) ? latest.parts[latest.parts.length - 1].from : latest.to;
    if (at < known) return;
    if (change.type === 'run_opened') {
      if (Number.isNaN(latest.to)) return;
      const parts = [{ state: 'queued', from: at }];
      this.runs.push({ run: latest.run + 1, to: NaN, outcome: '', parts });
    } else if (change.type === 'ended') {
      if (!Number.isNaN(latest.to)) return;
      latest.to = at;
      latest.outcome = outcomeOf(change);
    } else {
      const state = stateAfter(change);
      if (state && Number.isNaN(latest.to)) this.#push(state, at);
    }
  }

  /** Includes the earlier runs of a task's detail. @param {Run[]} runs */
  addEarlierRuns(runs) {
    for (const { run, ended_at: endedAt, outcome } of runs) {
      if (this.runs.some((known) => known.run === run)) continue;
      const to = Date.parse(endedAt);
      // The start of a later run is not stored: only its end is drawn.
      const from = run === 1 ? this.spawnedAt : to;
      this.runs.push({ run, to, outcome: outcome.type, parts: [{ state: UNSEEN, from }] });
    }
    this.runs.sort((a, b) => a.run - b.run);
  }

  /**
   * Replaces all that is known by the events of the task, from its spawn on. Of a history that retention
   * has cut, nothing is used.
   * @param {Change[]} changes
   */
  replay(changes) {
    const [first] = changes;
    if (first?.type !== 'spawned') return;
    const from = Date.parse(first.at);
    const state = stateAfter(first) ?? UNSEEN;
    this.runs = [{ run: 1, to: NaN, outcome: '', parts: [{ state, from }] }];
    for (const change of changes.slice(1)) this.apply(change);
    this.isComplete = true;
  }

  /**
   * Returns what the bar of the task shows, from the left to the right.
   * @param {number} now
   * @returns {Stretch[]}
   */
  stretches(now) {
    /** @type {Stretch[]} */
    const stretches = [];
    let end = this.spawnedAt;
    let previous = 0;
    for (const { run, to, outcome, parts } of this.runs) {
      const { from } = parts[0];
      if (run > previous + 1) stretches.push({ look: PAST, from: end, to: from, run });
      parts.forEach((part, index) => {
        const partEnd = parts[index + 1]?.from ?? (Number.isNaN(to) ? now : to);
        const look = outcome !== '' && !isIdle(part.state) ? outcome : part.state;
        stretches.push({ look, from: part.from, to: partEnd, run });
      });
      const last = parts[parts.length - 1];
      if (outcome !== '' && isIdle(last.state))
        stretches.push({ look: outcome, from: to, to, run });
      end = Number.isNaN(to) ? now : to;
      previous = run;
    }
    return stretches;
  }

  /**
   * @param {string} state
   * @param {number} from
   */
  #push(state, from) {
    const { parts } = this.latest;
    const last = parts[parts.length - 1];
    if (last.state === state) return;
    // A state that took no time is not drawn.
    if (last.from === from) parts.pop();
    if (parts[parts.length - 1]?.state === state) return;
    parts.push({ state, from });
    if (parts.length <= MAX_PARTS) return;
    parts.splice(1, 1);
    parts[0].state = UNSEEN;
  }
}

/** Idle and unseen time keeps its look when the run has ended. @param {string} state */
function isIdle(state) {
  return state === 'waiting' || state === 'queued' || state === 'away' || state === UNSEEN;
}

/** Returns the present run as a row tells it. @param {Task} task @returns {RunSpan} */
function describeRun(task) {
  const spawnedAt = Date.parse(task.spawned_at);
  const since = Date.parse(task.state_since ?? task.ended_at ?? task.last_activity_at);
  const startedAt = Date.parse(task.started_at ?? '');
  const start = task.run === 1 ? spawnedAt : Number.isNaN(startedAt) ? since : startedAt;
  /** @type {TimelinePart[]} */
  const parts = [];
  if (startedAt > start) parts.push({ state: 'queued', from: start });
  const busyFrom = startedAt > start ? startedAt : start;
  // A process never waits, so that one attempt ran from its start to its end.
  const isKnown = task.kind === 'process' && !task.alive && task.attempt === task.run;
  if (!task.alive || since > busyFrom)
    parts.push({ state: isKnown ? 'running' : UNSEEN, from: busyFrom });
  if (task.alive) parts.push({ state: task.state, from: Math.max(since, busyFrom) });
  const to = task.alive ? NaN : Date.parse(task.ended_at ?? '');
  return { run: task.run, to, outcome: task.alive ? '' : task.state, parts };
}

/** Returns the state that an event begins. @param {Change} change */
function stateAfter(change) {
  switch (change.type) {
    case 'spawned':
      return change.data.reason === undefined ? 'running' : 'queued';
    case 'started':
      return 'running';
    case 'queued':
    case 'recovered':
      return 'queued';
    case 'away':
      return 'away';
    case 'unattended':
    case 'returned':
      return 'running';
    case 'suspended':
      return 'waiting';
    case 'stop_requested':
      return 'stopping';
    case 'closing':
      return 'closing';
    default:
      return null;
  }
}

/** @param {Change} change */
function outcomeOf(change) {
  const outcome = /** @type {{type?: string} | undefined} */ (change.data.outcome);
  return outcome?.type ?? 'other';
}
