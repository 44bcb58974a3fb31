//! Made-up messages: headers as servers write them, text in sentences, and attachments that do not compress.

use std::fmt::Write;

use crate::events::Draw;

const WORDS: [&str; 96] = [
    "the",
    "of",
    "and",
    "to",
    "a",
    "in",
    "is",
    "that",
    "for",
    "it",
    "was",
    "on",
    "with",
    "as",
    "be",
    "this",
    "at",
    "by",
    "we",
    "you",
    "are",
    "have",
    "from",
    "not",
    "will",
    "our",
    "can",
    "your",
    "all",
    "has",
    "more",
    "if",
    "meeting",
    "report",
    "please",
    "attached",
    "order",
    "invoice",
    "number",
    "customer",
    "delivery",
    "project",
    "question",
    "server",
    "update",
    "version",
    "tomorrow",
    "morning",
    "regards",
    "thanks",
    "shipment",
    "contract",
    "deadline",
    "budget",
    "review",
    "document",
    "change",
    "request",
    "support",
    "account",
    "payment",
    "address",
    "confirm",
    "available",
    "schedule",
    "problem",
    "solution",
    "before",
    "between",
    "because",
    "already",
    "several",
    "another",
    "possible",
    "quarter",
    "garden",
    "kettle",
    "window",
    "bridge",
    "letter",
    "harbour",
    "station",
    "library",
    "kitchen",
    "weather",
    "holiday",
    "engine",
    "copper",
    "silver",
    "orange",
    "paper",
    "market",
    "village",
    "river",
    "winter",
    "summer",
];
const NAMES: [&str; 24] = [
    "anna", "bruno", "clara", "david", "elena", "felix", "greta", "henri", "ines", "jonas", "katja", "lars",
    "maria", "nils", "olga", "peter", "rosa", "simon", "tanja", "urs", "vera", "walter", "yvonne", "zeno",
];
const HOSTS: [&str; 6] = [
    "example.org",
    "mail.example.net",
    "lists.example.com",
    "office.example",
    "shop.example",
    "uni.example.edu",
];

/// Above this a message is mostly attachment.
const TEXT_AT_MOST_BYTES: usize = 24_000;

/// Where messages come from: the same numbers give the same messages.
#[derive(Clone, Copy, Debug)]
pub struct Messages {
    /// Chooses everything.
    pub seed: u64,
    /// Half of the messages are smaller.
    pub median_bytes: u64,
    /// Standard deviation of the logarithm of the sizes.
    pub spread: f64,
    /// No message is larger, but for what a header takes.
    pub largest_bytes: u64,
}

impl Messages {
    /// Message `number`, with lines that end as in transport.
    pub fn message(&self, number: u64) -> Vec<u8> {
        let mut draw = self.draw(number);
        let size = self.size(&mut draw);
        let mut text = String::with_capacity(size + 1024);
        headers(&mut draw, number, size > TEXT_AT_MOST_BYTES, &mut text);
        let text_end = size.min(TEXT_AT_MOST_BYTES);
        while text.len() < text_end {
            paragraph(&mut draw, text_end, &mut text);
        }
        if size > TEXT_AT_MOST_BYTES {
            attachment(&mut draw, size, &mut text);
        }
        text.into_bytes()
    }

    /// A name as delivery agents give them.
    pub fn file_name(number: u64, size: usize) -> String {
        format!(
            "{}.M{}P{}.mail,S={size}",
            1_733_000_000 + number / 7,
            number * 7919 % 1_000_000,
            2000 + number % 97
        )
    }

    fn draw(&self, number: u64) -> Draw {
        // One step mixes seed and number, so that neighbours have nothing in common.
        let mixed = Draw::new(self.seed ^ number.wrapping_mul(0xD6E8_FEB8_6659_FD93)).bits();
        Draw::new(mixed)
    }

    /// Lognormal, by the method of Box and Muller (1958).
    fn size(&self, draw: &mut Draw) -> usize {
        let mut uniform = || (draw.below(1 << 52) as f64 + 1.0) / (1_u64 << 52) as f64;
        let (first, second) = (uniform(), uniform());
        let normal = (-2.0 * first.ln()).sqrt() * (2.0 * std::f64::consts::PI * second).cos();
        let size = self.median_bytes as f64 * (self.spread * normal).exp();
        (size as usize).clamp(600, self.largest_bytes.max(600) as usize)
    }
}

fn pick<'a>(draw: &mut Draw, values: &[&'a str]) -> &'a str {
    values[draw.below(values.len() as u64) as usize]
}

/// A word; the first of the list are the most frequent ones.
fn word(draw: &mut Draw) -> &'static str {
    let share = draw.below(1 << 20) as f64 / f64::from(1 << 20);
    WORDS[(share * share * WORDS.len() as f64) as usize]
}

fn headers(draw: &mut Draw, number: u64, attachment: bool, text: &mut String) {
    let (from, to) = (pick(draw, &NAMES), pick(draw, &NAMES));
    let (host, relay) = (pick(draw, &HOSTS), pick(draw, &HOSTS));
    let (day, hour, minute, second) = (1 + draw.below(28), draw.below(24), draw.below(60), draw.below(60));
    let date = format!("{day:02} Nov 2024 {hour:02}:{minute:02}:{second:02} +0000");
    let id = format!("{:016x}.{:08x}", draw.bits(), draw.bits() as u32);
    let kind = if attachment {
        format!("multipart/mixed; boundary=\"=_{:016x}\"", draw.bits())
    } else {
        "text/plain; charset=utf-8".to_owned()
    };
    let (first, second_word, third) = (word(draw), word(draw), word(draw));
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "Return-Path: <{from}@{host}>\r\n\
         Delivered-To: {to}@example.org\r\n\
         Received: from {relay} ({relay} [192.0.2.{}])\r\n\
         \tby mx.example.org (Postfix) with ESMTPS id {:010X}\r\n\
         \tfor <{to}@example.org>; {date}\r\n\
         DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/simple; d={host}; s=mail;\r\n\
         \tbh={}=; b={}\r\n\
         Message-ID: <{id}@{host}>\r\n\
         Date: {date}\r\n\
         From: {from} <{from}@{host}>\r\n\
         To: {to}@example.org\r\n\
         Subject: {first} {second_word} {third} {number}\r\n\
         MIME-Version: 1.0\r\n\
         Content-Type: {kind}\r\n\
         Content-Transfer-Encoding: 8bit\r\n\r\n",
        draw.below(256),
        draw.below(1 << 40),
        random_text(draw, 43),
        random_text(draw, 172),
    );
}

/// Sentences in lines of about 72 characters, until `end`.
fn paragraph(draw: &mut Draw, end: usize, text: &mut String) {
    let words = 20 + draw.below(80);
    let mut line = 0;
    for _ in 0..words {
        if text.len() >= end {
            break;
        }
        let word = word(draw);
        text.push_str(word);
        line += word.len() + 1;
        if draw.below(12) == 0 {
            text.push('.');
        }
        if line > 72 {
            text.push_str("\r\n");
            line = 0;
        } else {
            text.push(' ');
        }
    }
    text.push_str("\r\n\r\n");
}

fn attachment(draw: &mut Draw, end: usize, text: &mut String) {
    text.push_str(
        "--=_\r\nContent-Type: image/jpeg; name=\"picture.jpg\"\r\nContent-Transfer-Encoding: base64\r\n\r\n",
    );
    while text.len() < end {
        text.push_str(&random_text(draw, 76));
        text.push_str("\r\n");
    }
    text.push_str("--=_--\r\n");
}

/// Random characters of base64.
fn random_text(draw: &mut Draw, characters: usize) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(characters);
    while text.len() < characters {
        let mut bits = draw.bits();
        // Ten characters of six bits from each number of 64.
        for _ in 0..10.min(characters - text.len()) {
            text.push(char::from(ALPHABET[(bits & 63) as usize]));
            bits >>= 6;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: Messages = Messages {
        seed: 5,
        median_bytes: 5_000,
        spread: 1.3,
        largest_bytes: 2 << 20,
    };

    #[test]
    fn same_number_same_message() {
        assert_eq!(SOURCE.message(3), SOURCE.message(3));
        assert_ne!(SOURCE.message(3), SOURCE.message(4));
    }

    #[test]
    fn sizes_are_lognormal() {
        let mut sizes: Vec<usize> = (0..2_000).map(|number| SOURCE.message(number).len()).collect();
        sizes.sort_unstable();
        let middle = sizes[sizes.len() / 2];
        assert!((4_500..5_700).contains(&middle), "the middle size is {middle}");
        // One standard deviation up: 5,000 times e^1.3.
        let upper = sizes[sizes.len() * 84 / 100];
        assert!((15_000..22_500).contains(&upper), "84 % are below {upper}");
        assert!(sizes.last().is_some_and(|size| *size < (2 << 20) + 2_000));
    }

    #[test]
    fn messages_have_headers_and_a_body() {
        let large = (0..)
            .find(|number| SOURCE.message(*number).len() > 40_000)
            .unwrap_or_default();
        for number in [0, 1, large] {
            let text = String::from_utf8(SOURCE.message(number)).expect("text");
            let (head, body) = text.split_once("\r\n\r\n").expect("an empty line");
            assert!(head.contains("Message-ID: <") && head.contains("Subject: "));
            assert!(body.len() > 10);
        }
    }
}
