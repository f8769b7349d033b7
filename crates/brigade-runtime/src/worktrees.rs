//! Git worktrees of tasks: each such task works on a branch of its own.
//!
//! - `service`: makes and stores a worktree before its task starts, and releases it after the end.
//! - `lifecycle`: makes, examines and removes one worktree; `repository`: the repository of a
//!   directory.
//! - `worktree_records`: worktrees as stored for the next runtime; `git_files`: the files by which git
//!   knows a worktree; `clean_filters`: refuses filters that would damage files.
//! - `git`: runs git; `repository_view`: runs it without the configuration of the repository, so
//!   that nothing in it is executed; `foreign_files`: reads and checks files of others.
//! - `placement`: moves work and its sandbox into a worktree.

mod clean_filters;
mod foreign_files;
mod git;
mod git_files;
mod lifecycle;
mod placement;
mod repository;
mod repository_view;
mod service;
mod worktree_records;

pub(crate) use placement::performed_work;
pub(crate) use service::{WorktreeService, check_worktree};
