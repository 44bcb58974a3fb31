//! Generated click events of a web shop: a table, its indexes, questions to ask of it, and rows without end.
//!
//! Rows come from visits: a visitor of a team's site, with a browser, a place and a campaign, looks at pages, puts things
//! in a basket and sometimes pays. So values repeat as they do in real event tables, some are skewed, some are random.
//! The same seed gives the same rows on every machine and with every version of every library, because the random
//! numbers are made here.
//!
//! Leaves out: anything time-dependent; the clock of the events starts at a fixed moment and moves on by itself.

use std::fmt::Write;

/// Makes the table.
pub const CREATE_TABLE: &str = "
CREATE TABLE event (
    id          bigint      NOT NULL,
    team_id     integer     NOT NULL,
    user_id     bigint      NOT NULL,
    session     uuid        NOT NULL,
    event       text        NOT NULL,
    url         text        NOT NULL,
    time        timestamptz NOT NULL,
    properties  jsonb       NOT NULL
)";

/// Takes the rows that [`Generator::write_row`] makes.
pub const COPY: &str = "COPY event (id, team_id, user_id, session, event, url, time, properties) FROM STDIN";

/// Statements that make the indexes: one btree over everything, partial ones for single kinds of events, and one GIN.
pub const CREATE_INDEXES: [&str; 7] = [
    "CREATE INDEX event_user_time ON event (user_id, time)",
    "CREATE INDEX event_purchase ON event (team_id, time) WHERE event = 'purchase'",
    "CREATE INDEX event_signup ON event (team_id, time) WHERE event = 'signup'",
    "CREATE INDEX event_search ON event (team_id, time) WHERE event = 'search'",
    "CREATE INDEX event_add_to_cart ON event (team_id, user_id) WHERE event = 'add_to_cart'",
    "CREATE INDEX event_error ON event (time) WHERE event = 'client_error'",
    "CREATE INDEX event_properties ON event USING gin (properties jsonb_path_ops)",
];

/// Questions in words and in SQL.
pub const QUESTIONS: [(&str, &str); 5] = [
    (
        "Events by kind",
        "SELECT event, count(*) AS events, count(DISTINCT session) AS sessions
           FROM event GROUP BY event ORDER BY events DESC",
    ),
    (
        "Revenue of one team by day",
        "SELECT date_trunc('day', time)::date AS day, count(*) AS purchases,
                round(sum((properties->>'revenue')::numeric), 2) AS revenue
           FROM event WHERE event = 'purchase' AND team_id = 1
          GROUP BY day ORDER BY day LIMIT 7",
    ),
    (
        "Purchases by campaign among Safari users (GIN)",
        "SELECT coalesce(properties->>'utm_campaign', '(none)') AS campaign, count(*) AS purchases
           FROM event WHERE properties @> '{\"browser\": \"Safari\", \"step\": \"paid\"}'
          GROUP BY campaign ORDER BY purchases DESC LIMIT 5",
    ),
    (
        "From basket to purchase within an hour, by team",
        "SELECT c.team_id, count(DISTINCT c.user_id) AS with_basket,
                count(DISTINCT c.user_id) FILTER (WHERE EXISTS (
                    SELECT FROM event p WHERE p.user_id = c.user_id AND p.event = 'purchase'
                       AND p.time BETWEEN c.time AND c.time + interval '1 hour')) AS bought
           FROM event c WHERE c.event = 'add_to_cart' AND c.team_id BETWEEN 1 AND 5
          GROUP BY c.team_id ORDER BY c.team_id",
    ),
    (
        "Latest events of the most active user",
        "SELECT time, event, url FROM event
          WHERE user_id = (SELECT user_id FROM event GROUP BY user_id ORDER BY count(*) DESC, user_id LIMIT 1)
          ORDER BY time DESC LIMIT 5",
    ),
];

/// Names of events with their weights in 1,000; `purchase` also follows from a full basket.
const KINDS: [(&str, u64); 9] = [
    ("pageview", 560),
    ("click", 190),
    ("product_viewed", 110),
    ("search", 50),
    ("add_to_cart", 40),
    ("purchase", 14),
    ("signup", 8),
    ("newsletter_opened", 18),
    ("client_error", 10),
];
const BROWSERS: [(&str, &str, &str); 6] = [
    ("Chrome", "126.0.6478", "Windows"),
    ("Chrome", "126.0.6478", "Android"),
    ("Safari", "17.5", "Mac OS X"),
    ("Mobile Safari", "17.5", "iOS"),
    ("Firefox", "127.0", "Linux"),
    ("Microsoft Edge", "126.0.2592", "Windows"),
];
const SCREENS: [(u32, u32); 5] = [(1920, 1080), (1536, 864), (390, 844), (412, 915), (2560, 1440)];
const PLACES: [(&str, &str, &str); 8] = [
    ("Germany", "Berlin", "Europe/Berlin"),
    ("Germany", "Leipzig", "Europe/Berlin"),
    ("France", "Lyon", "Europe/Paris"),
    ("United States", "Chicago", "America/Chicago"),
    ("United States", "Portland", "America/Los_Angeles"),
    ("Brazil", "Recife", "America/Recife"),
    ("Japan", "Osaka", "Asia/Tokyo"),
    ("India", "Pune", "Asia/Kolkata"),
];
const CAMPAIGNS: [(&str, &str, &str); 4] = [
    ("google", "cpc", "summer_sale"),
    ("newsletter", "email", "weekly_digest"),
    ("facebook", "paid_social", "new_arrivals"),
    ("partner", "referral", "autumn_catalogue"),
];
const WORDS: [&str; 16] = [
    "oak", "lamp", "linen", "chair", "desk", "wool", "rug", "mirror", "shelf", "copper", "kettle", "vase",
    "blue", "large", "set", "garden",
];
const ELEMENTS: [&str; 6] = [
    "Add to basket",
    "Show more",
    "Next page",
    "Sort by price",
    "Open menu",
    "Sign in",
];

/// 2024-03-01 00:00:00 UTC in microseconds since 1970.
const FIRST_MOMENT_US: u64 = 1_709_251_200_000_000;
const OPEN_VISITS: usize = 1_500;
const TEAMS: u64 = 60;
const USERS: u64 = 120_000;
const PRODUCTS: u64 = 4_000;

/// Pseudo-random numbers that stay the same for ever: the SplitMix64 sequence (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// The sequence that belongs to `seed`.
    pub fn new(seed: u64) -> Draw {
        Draw(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(limit)) >> 64) as u64
    }

    /// A number below `limit`, small ones much more often than large ones.
    fn skewed_below(&mut self, limit: u64) -> u64 {
        let share = self.below(1 << 20) as f64 / f64::from(1 << 20);
        ((share * share * share) * limit as f64) as u64
    }

    fn pick<'a, T>(&mut self, values: &'a [T]) -> &'a T {
        &values[self.below(values.len() as u64) as usize]
    }

    fn uuid(&mut self) -> String {
        let (high, low) = (self.bits(), self.bits());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            (low >> 48) & 0x3fff | 0x8000,
            low & 0xffff_ffff_ffff
        )
    }
}

/// One visitor on one site; its constant part of the properties is made once.
struct Visit {
    team_id: u64,
    user_id: u64,
    session: String,
    url: String,
    constant_properties: String,
    basket: u64,
}

/// Makes rows one after the other, in the order of their time.
pub struct Generator {
    draw: Draw,
    visits: Vec<Visit>,
    next_id: u64,
    time_us: u64,
}

impl Generator {
    /// Rows that belong to `seed`.
    pub fn new(seed: u64) -> Generator {
        let mut draw = Draw::new(seed);
        let visits = (0..OPEN_VISITS).map(|_| Visit::begin(&mut draw)).collect();
        Generator {
            draw,
            visits,
            next_id: 1,
            time_us: FIRST_MOMENT_US,
        }
    }

    /// Appends the next row to `text` in the format of `COPY`: columns between tabs, ended by a line feed.
    pub fn write_row(&mut self, text: &mut String) {
        self.time_us += 200_000 + self.draw.below(5_000_000);
        let slot = self.draw.below(self.visits.len() as u64) as usize;
        // A visit has 12 events on average; then someone else comes.
        if self.draw.below(12) == 0 {
            self.visits[slot] = Visit::begin(&mut self.draw);
        }
        let visit = &mut self.visits[slot];
        let kind = visit.next_kind(&mut self.draw);
        let own = visit.properties_of(kind, &mut self.draw);
        let id = self.next_id;
        self.next_id += 1;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{id}\t{}\t{}\t{}\t{kind}\t{}\t{}\t{{{}, {own}\"insert_id\": \"{:016x}\"}}",
            visit.team_id,
            visit.user_id,
            visit.session,
            visit.url,
            timestamp(self.time_us),
            visit.constant_properties,
            self.draw.bits(),
        );
    }
}

impl Visit {
    fn begin(draw: &mut Draw) -> Visit {
        let team_id = 1 + draw.skewed_below(TEAMS);
        let user_id = team_id * 1_000_000 + draw.skewed_below(USERS);
        let (browser, version, system) = draw.pick(&BROWSERS);
        let (width, height) = draw.pick(&SCREENS);
        let (country, city, zone) = draw.pick(&PLACES);
        let mut constant = format!(
            "\"browser\": \"{browser}\", \"browser_version\": \"{version}.{}\", \"os\": \"{system}\", \
             \"device_type\": \"{}\", \"screen_width\": {width}, \"screen_height\": {height}, \
             \"country\": \"{country}\", \"city\": \"{city}\", \"timezone\": \"{zone}\", \
             \"lib\": \"web\", \"lib_version\": \"1.139.{}\", \"distinct_id\": \"user-{user_id}\"",
            draw.below(120),
            if *width < 500 { "Mobile" } else { "Desktop" },
            draw.below(4),
        );
        if draw.below(3) == 0 {
            let (source, medium, campaign) = draw.pick(&CAMPAIGNS);
            let _ = write!(
                constant,
                ", \"utm_source\": \"{source}\", \"utm_medium\": \"{medium}\", \"utm_campaign\": \"{campaign}\", \
                 \"referrer\": \"https://www.{source}.example/\""
            );
        }
        let session = draw.uuid();
        let url = page_url(team_id, draw);
        Visit {
            team_id,
            user_id,
            session,
            url,
            constant_properties: constant,
            basket: 0,
        }
    }

    fn next_kind(&mut self, draw: &mut Draw) -> &'static str {
        if self.basket > 0 && draw.below(6) == 0 {
            return "purchase";
        }
        let mut number = draw.below(KINDS.iter().map(|(_, weight)| weight).sum());
        for (kind, weight) in KINDS {
            if number < weight {
                return kind;
            }
            number -= weight;
        }
        KINDS[0].0
    }

    /// The properties that only events of this kind have, each followed by a comma.
    fn properties_of(&mut self, kind: &str, draw: &mut Draw) -> String {
        match kind {
            "pageview" => {
                let previous = std::mem::replace(&mut self.url, page_url(self.team_id, draw));
                format!(
                    "\"previous_url\": \"{previous}\", \"load_ms\": {}, ",
                    80 + draw.skewed_below(4_000)
                )
            }
            "click" => format!(
                "\"element_text\": \"{}\", \"element_tag\": \"button\", \"x\": {}, \"y\": {}, ",
                draw.pick(&ELEMENTS),
                draw.below(1_900),
                draw.below(1_000)
            ),
            "search" => {
                let query = format!("{} {}", draw.pick(&WORDS), draw.pick(&WORDS));
                format!(
                    "\"query\": \"{query}\", \"results\": {}, ",
                    draw.skewed_below(300)
                )
            }
            "product_viewed" | "add_to_cart" => {
                self.basket += u64::from(kind == "add_to_cart");
                let product = draw.skewed_below(PRODUCTS);
                format!(
                    "\"product_id\": {product}, \"category\": \"{}\", \"price\": {}.{:02}, \"currency\": \"EUR\", ",
                    WORDS[product as usize % WORDS.len()],
                    5 + product * 7 % 400,
                    product * 13 % 100
                )
            }
            "purchase" => {
                let items = 1 + std::mem::take(&mut self.basket);
                format!(
                    "\"step\": \"paid\", \"order_id\": \"{:010}\", \"items\": {items}, \"revenue\": {}.{:02}, \
                     \"currency\": \"EUR\", ",
                    draw.below(10_000_000_000),
                    items * (10 + draw.skewed_below(300)),
                    draw.below(100)
                )
            }
            "client_error" => format!(
                "\"message\": \"TypeError: Cannot read properties of undefined (reading '{}')\", \"line\": {}, ",
                draw.pick(&WORDS),
                draw.below(3_000)
            ),
            _ => String::new(),
        }
    }
}

fn page_url(team_id: u64, draw: &mut Draw) -> String {
    let (first, second) = (draw.pick(&WORDS), draw.pick(&WORDS));
    match draw.below(3) {
        0 => format!(
            "https://shop{team_id}.example/c/{first}/{second}?page={}",
            1 + draw.skewed_below(20)
        ),
        1 => format!(
            "https://shop{team_id}.example/p/{first}-{second}-{}",
            draw.skewed_below(PRODUCTS)
        ),
        _ => format!("https://shop{team_id}.example/{first}"),
    }
}

/// Microseconds since 1970 as `2024-03-01 00:00:00.000000+00`.
fn timestamp(time_us: u64) -> String {
    let (seconds, micros) = (time_us / 1_000_000, time_us % 1_000_000);
    let (days, second_of_day) = (seconds / 86_400, seconds % 86_400);
    // Days to a date of the Gregorian calendar, counting years from March so that leap days come last (Hinnant 2013).
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}.{micros:06}+00",
        second_of_day / 3_600,
        second_of_day / 60 % 60,
        second_of_day % 60
    )
}

#[cfg(test)]
mod tests;
