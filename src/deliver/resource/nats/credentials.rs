//! Credentials files of NATS.

use data_encoding::BASE32_NOPAD;
use ring::signature::Ed25519KeyPair;

/// A user's JWT, and the key that proves it.
pub struct Credentials {
    jwt: String,
    key: Ed25519KeyPair,
}

impl Credentials {
    /// Parses a credentials file of NATS.
    pub fn parse(file: &str) -> Option<Self> {
        let mut blocks = file.split("-----BEGIN ").skip(1).filter_map(parse_block);
        let jwt = blocks.find_map(|(name, text)| (name == "NATS USER JWT").then_some(text))?;
        let mut blocks = file.split("-----BEGIN ").skip(1).filter_map(parse_block);
        let seed = blocks.find_map(|(name, text)| (name == "USER NKEY SEED").then_some(text))?;
        Some(Self {
            jwt: jwt.to_owned(),
            key: key_of_seed(seed)?,
        })
    }

    pub fn jwt(&self) -> &str {
        &self.jwt
    }

    /// Signs the nonce of a server.
    pub fn sign(&self, nonce: &[u8]) -> Vec<u8> {
        self.key.sign(nonce).as_ref().to_vec()
    }
}

/// The name of a block of a credentials file, and its first line.
fn parse_block(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.split_once("-----")?;
    Some((
        name,
        rest.lines().map(str::trim).find(|line| !line.is_empty())?,
    ))
}

/// The key of a seed: two bytes that say that it is a user's, 32 bytes of the seed, and a checksum.
fn key_of_seed(seed: &str) -> Option<Ed25519KeyPair> {
    let bytes = BASE32_NOPAD
        .decode(seed.as_bytes())
        .ok()
        .filter(|_| seed.starts_with("SU"))?;
    let (content, checksum) = bytes.split_at_checked(34)?;
    if checksum != crc16(content).to_le_bytes() {
        return None;
    }
    Ed25519KeyPair::from_seed_unchecked(&content[2..]).ok()
}

/// CRC-16/XMODEM, as NATS has it.
fn crc16(bytes: &[u8]) -> u16 {
    let mut crc: u16 = 0;
    for byte in bytes {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            let is_carried = crc & 0x8000 != 0;
            crc <<= 1;
            if is_carried {
                crc ^= 0x1021;
            }
        }
    }
    crc
}
