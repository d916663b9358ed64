//! Where Redis is: `REDIS_URL` in its three forms.

/// The servers to begin with. Debug shows no password.
#[derive(Clone)]
pub enum Address {
    Single(String),
    Cluster {
        seeds: Vec<String>,
        /// For servers that the seeds name.
        login: Login,
    },
    Sentinel {
        sentinels: Vec<String>,
        master: String,
        /// For the master that the sentinels name.
        login: Login,
    },
}

/// What stands around host and port in the address of one server.
#[derive(Clone, Default)]
pub struct Login {
    tls: bool,
    credentials: String,
    database: String,
}

impl Login {
    /// The URL of a server, asking for the protocol that can carry messages beside answers.
    pub(crate) fn url(&self, host_and_port: &str) -> String {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let Self { credentials, database, .. } = self;
        format!("{scheme}://{credentials}{host_and_port}/{database}?protocol=resp3")
    }
}

impl Address {
    /// The error says what is wrong without repeating the address, which may hold a password.
    pub fn parse(url: &str) -> Result<Self, &'static str> {
        let (scheme, rest) = url.split_once("://").ok_or("it begins with redis://")?;
        let (scheme, form) = scheme.split_once('+').unwrap_or((scheme, ""));
        let tls = match scheme {
            "redis" => false,
            "rediss" => true,
            _ => return Err("it begins with redis, rediss, redis+cluster or redis+sentinel"),
        };
        let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, hosts) = match place.rsplit_once('@') {
            Some((credentials, hosts)) => (format!("{credentials}@"), hosts),
            None => (String::new(), place),
        };
        let hosts: Vec<&str> = hosts.split(',').map(str::trim).collect();
        if hosts.iter().any(|host| host.is_empty()) {
            return Err("a host is missing");
        }
        let numbered = |database: &str| database.bytes().all(|byte| byte.is_ascii_digit());
        let login =
            |database: &str| Login { tls, credentials: credentials.clone(), database: database.to_owned() };
        let address = match form {
            "" if hosts.len() > 1 => return Err("several hosts need redis+cluster or redis+sentinel"),
            "" if !numbered(path) => return Err("after the host comes the number of the database"),
            "" => Self::Single(login(path).url(hosts[0])),
            "cluster" if !path.is_empty() => return Err("a Cluster has no numbered databases"),
            "cluster" => {
                let login = login("");
                Self::Cluster { seeds: hosts.iter().map(|host| login.url(host)).collect(), login }
            }
            "sentinel" => {
                let (master, database) = path.split_once('/').unwrap_or((path, ""));
                if master.is_empty() || !numbered(database) {
                    return Err("after the sentinels comes the name of the master");
                }
                // Sentinels have no databases, and mostly no passwords.
                let plain = Login { tls, ..Login::default() };
                let sentinels = hosts.iter().map(|host| plain.url(host)).collect();
                Self::Sentinel { sentinels, master: master.to_owned(), login: login(database) }
            }
            _ => return Err("it begins with redis, rediss, redis+cluster or redis+sentinel"),
        };
        for url in address.urls() {
            redis::Client::open(url.as_str()).map_err(|_| "a host, a port or a password is not readable")?;
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

impl std::fmt::Debug for Address {
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
    fn the_three_forms_are_read() {
        let single = Address::parse("rediss://anna:secret@redis.example:6380/2").unwrap();
        assert!(
            matches!(&single, Address::Single(url) if url == "rediss://anna:secret@redis.example:6380/2?protocol=resp3")
        );
        assert!(!format!("{single:?}").contains("secret"));
        let cluster = Address::parse("redis+cluster://:pw@a:1,b:2").unwrap();
        let Address::Cluster { seeds, login } = cluster else { panic!("a Cluster") };
        assert_eq!(seeds, ["redis://:pw@a:1/?protocol=resp3", "redis://:pw@b:2/?protocol=resp3"]);
        assert_eq!(login.url("c:3"), "redis://:pw@c:3/?protocol=resp3");
        let sentinel = Address::parse("redis+sentinel://:pw@a:1,b:2/main/3").unwrap();
        let Address::Sentinel { sentinels, master, login } = sentinel else { panic!("Sentinel") };
        assert_eq!((sentinels.len(), master.as_str()), (2, "main"));
        assert_eq!(sentinels[0], "redis://a:1/?protocol=resp3");
        assert_eq!(login.url("m:9"), "redis://:pw@m:9/3?protocol=resp3");
    }

    #[test]
    fn what_is_no_address_is_refused_without_being_repeated() {
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
            let why = Address::parse(url).unwrap_err();
            assert!(!why.contains(url), "{url}");
        }
    }
}
