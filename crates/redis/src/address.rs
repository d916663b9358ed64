//! The address of Redis: `REDIS_URL` for a single server, a Cluster, or Sentinel.

const SCHEMES: &str = "it must begin with redis://, rediss://, redis+cluster:// or redis+sentinel://";

/// The servers to connect to first. Debug shows no password.
#[derive(Clone)]
pub enum RedisAddress {
    Single(String),
    Cluster {
        seeds: Vec<String>,
        /// For the servers that the seeds report.
        login: Login,
    },
    Sentinel {
        sentinels: Vec<String>,
        master: String,
        /// For the master that the sentinels report.
        login: Login,
    },
}

/// The parts of a server's URL around its host and port.
#[derive(Clone, Default)]
pub struct Login {
    tls: bool,
    credentials: String,
    database: String,
}

impl Login {
    /// The URL of a server, with RESP3, which can carry pub/sub messages and replies on one connection.
    pub(crate) fn url(&self, host_and_port: &str) -> String {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let Self { credentials, database, .. } = self;
        format!("{scheme}://{credentials}{host_and_port}/{database}?protocol=resp3")
    }
}

impl RedisAddress {
    /// The error does not repeat the address, because the address may contain a password.
    pub fn parse(url: &str) -> Result<Self, &'static str> {
        let (scheme, rest) = url.split_once("://").ok_or(SCHEMES)?;
        let (scheme, form) = scheme.split_once('+').unwrap_or((scheme, ""));
        let tls = match scheme {
            "redis" => false,
            "rediss" => true,
            _ => return Err(SCHEMES),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (format!("{credentials}@"), hosts),
            None => (String::new(), authority),
        };
        let hosts: Vec<&str> = hosts.split(',').map(str::trim).collect();
        if hosts.iter().any(|host| host.is_empty()) {
            return Err("it lacks a host");
        }
        let is_number = |database: &str| database.bytes().all(|byte| byte.is_ascii_digit());
        let login =
            |database: &str| Login { tls, credentials: credentials.clone(), database: database.to_owned() };
        let address = match form {
            "" if hosts.len() > 1 => {
                return Err("with several hosts it must begin with redis+cluster or redis+sentinel");
            }
            "" if !is_number(path) => return Err("the database after the host must be a number"),
            "" => Self::Single(login(path).url(hosts[0])),
            "cluster" if !path.is_empty() => return Err("a Cluster has no numbered databases"),
            "cluster" => {
                let login = login("");
                Self::Cluster { seeds: hosts.iter().map(|host| login.url(host)).collect(), login }
            }
            "sentinel" => {
                let (master, database) = path.split_once('/').unwrap_or((path, ""));
                if master.is_empty() || !is_number(database) {
                    return Err(
                        "it must name the master after the sentinels, and may end with the number of the database",
                    );
                }
                // Sentinels have no databases; their passwords are not supported.
                let sentinel_login = Login { tls, ..Login::default() };
                let sentinels = hosts.iter().map(|host| sentinel_login.url(host)).collect();
                Self::Sentinel { sentinels, master: master.to_owned(), login: login(database) }
            }
            _ => return Err(SCHEMES),
        };
        for url in address.urls() {
            redis::Client::open(url.as_str()).map_err(|_| "its host, port or password cannot be parsed")?;
        }
        Ok(address)
    }

    fn urls(&self) -> &[String] {
        match self {
            Self::Single(url) => std::slice::from_ref(url),
            Self::Cluster { seeds, .. } => seeds,
            Self::Sentinel { sentinels, .. } => sentinels,
        }
    }
}

impl std::fmt::Debug for RedisAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Single(_) => "one Redis",
            Self::Cluster { .. } => "a Redis Cluster",
            Self::Sentinel { .. } => "Redis behind Sentinel",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_are_parsed() {
        let single = RedisAddress::parse("rediss://anna:secret@redis.example:6380/2").unwrap();
        assert!(
            matches!(&single, RedisAddress::Single(url) if url == "rediss://anna:secret@redis.example:6380/2?protocol=resp3")
        );
        assert!(!format!("{single:?}").contains("secret"));
        let cluster = RedisAddress::parse("redis+cluster://:pw@a:1,b:2").unwrap();
        let RedisAddress::Cluster { seeds, login } = cluster else { panic!("a Cluster") };
        assert_eq!(seeds, ["redis://:pw@a:1/?protocol=resp3", "redis://:pw@b:2/?protocol=resp3"]);
        assert_eq!(login.url("c:3"), "redis://:pw@c:3/?protocol=resp3");
        let sentinel = RedisAddress::parse("redis+sentinel://:pw@a:1,b:2/main/3").unwrap();
        let RedisAddress::Sentinel { sentinels, master, login } = sentinel else { panic!("Sentinel") };
        assert_eq!((sentinels.len(), master.as_str()), (2, "main"));
        assert_eq!(sentinels[0], "redis://a:1/?protocol=resp3");
        assert_eq!(login.url("m:9"), "redis://:pw@m:9/3?protocol=resp3");
    }

    #[test]
    fn invalid_addresses_are_refused_without_repeating_them() {
        for url in [
            "localhost:6379",
            "http://localhost",
            "redis://",
            "redis://a:1,b:2",
            "redis://a:1/x",
            "redis+cluster://a:1/2",
            "redis+sentinel://a:1",
            "redis+raft://a:1",
            "redis://a:port",
        ] {
            let why = RedisAddress::parse(url).unwrap_err();
            assert!(!why.contains(url), "{url}");
        }
    }
}
