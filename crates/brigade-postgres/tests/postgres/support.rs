//! The server that all tests of this program share.

use std::sync::LazyLock;

use brigade_postgres::test_server::TestServer;

pub(crate) static SERVER: LazyLock<TestServer> = LazyLock::new(TestServer::start);
