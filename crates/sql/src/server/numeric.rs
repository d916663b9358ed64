//! Parses the decimal numbers in which servers return sums. Only whole numbers are accepted.

/// Parses PostgreSQL's binary form: the number of base-10,000 digits, the weight of the first one, the sign, the number
/// of displayed decimals, then the digits. None when the number is not whole or does not fit into 64 bits.
pub(crate) fn parse_binary(bytes: &[u8]) -> Option<i64> {
    let mut words = bytes.chunks_exact(2).map(|pair| i16::from_be_bytes([pair[0], pair[1]]));
    let (count, weight, sign, _) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let negative = match sign {
        0 => false,
        0x4000 => true,
        // NaN or infinity.
        _ => return None,
    };
    let digits: Vec<i16> = words.take(usize::try_from(count).ok()?).collect();
    let mut number: i64 = 0;
    for index in 0..=i32::from(weight) {
        let digit = digits.get(usize::try_from(index).ok()?).copied().unwrap_or(0);
        let digit = if negative { -i64::from(digit) } else { i64::from(digit) };
        number = number.checked_mul(10_000)?.checked_add(digit)?;
    }
    let whole_digits = usize::try_from(i32::from(weight) + 1).unwrap_or(0);
    digits.iter().skip(whole_digits).all(|digit| *digit == 0).then_some(number)
}

/// Parses text such as `-12` or `12.00`. None when the number is not whole or does not fit into 64 bits.
pub(crate) fn parse_text(text: &str) -> Option<i64> {
    let (number, decimals) = text.split_once('.').unwrap_or((text, ""));
    if decimals.bytes().all(|digit| digit == b'0') { number.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numeric(weight: i16, sign: i16, digits: &[i16]) -> Vec<u8> {
        let head = [i16::try_from(digits.len()).unwrap(), weight, sign, 0];
        head.iter().chain(digits).flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn whole_numbers_are_read_and_others_refused() {
        assert_eq!(parse_binary(&numeric(0, 0, &[])), Some(0));
        assert_eq!(parse_binary(&numeric(0, 0, &[42])), Some(42));
        assert_eq!(parse_binary(&numeric(1, 0, &[1, 2])), Some(10_002));
        assert_eq!(parse_binary(&numeric(2, 0x4000, &[3])), Some(-300_000_000));
        let least = numeric(4, 0x4000, &[922, 3372, 368, 5477, 5808]);
        assert_eq!(parse_binary(&least), Some(i64::MIN));
        assert_eq!(parse_binary(&numeric(4, 0, &[922, 3372, 368, 5477, 5808])), None, "too large");
        assert_eq!(parse_binary(&numeric(0, 0, &[1, 5000])), None, "one and a half");
        assert_eq!(parse_binary(&numeric(-1, 0, &[5000])), None, "a half");
        assert_eq!(parse_binary(&numeric(0, -0x4000, &[])), None, "not a number");
        assert_eq!(parse_binary(&[0, 1]), None);
    }

    #[test]
    fn whole_numbers_in_text_are_read() {
        for (text, number) in
            [("0", Some(0)), ("-12", Some(-12)), ("12.00", Some(12)), ("12.50", None), ("a", None)]
        {
            assert_eq!(parse_text(text), number, "{text}");
        }
    }
}
