"""Who gets in: tokens, TLS, and no open door off loopback."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pyarrow as pa
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from pyarrow import flight

from motet.errors import ConfigError, LogUnavailableError, TokenError
from motet.log.service.flight import LogService
from motet.log.service.tokens import Tls, TokenCheck
from motet.protocol.core.identity import is_loopback
from tests.log.service.memory import FakeGroup, MemorySource, client_of, positions_of

TOKEN = "a-token-of-more-than-16-characters"


def self_signed(*names: str) -> Tls:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "motet test")])
    others = [x509.IPAddress(ip_address(text)) if text[0].isdigit() else x509.DNSName(text) for text in names]
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(others), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Tls(certificate.public_bytes(Encoding.PEM), pem)


@pytest.fixture
def guarded() -> Iterator[LogService]:
    source = MemorySource(5)
    with LogService(source, FakeGroup(source), token=TOKEN) as service:
        yield service


def test_the_right_token_opens_every_call(guarded: LogService) -> None:
    with client_of(guarded, token=TOKEN) as client:
        assert client.offsets().stable == 5
        assert positions_of(list(client.read(1, 5))) == [1, 2, 3, 4, 5]
        assert client.append([b"x"], producer=1, sequence=1) == (6, 6)


@pytest.mark.parametrize("token", [None, "wrong", TOKEN[:-1], TOKEN + "x", TOKEN.upper()])
def test_a_wrong_or_missing_token_opens_nothing_and_is_not_tried_again_and_again(
    guarded: LogService, token: str | None
) -> None:
    with client_of(guarded, token=token, timeout_s=600) as client:
        for call in (
            client.offsets,
            lambda: list(client.read(1, 5)),
            lambda: next(client.follow(1)),
            lambda: client.append([b"x"], producer=1, sequence=1),
            lambda: client.append_all([b"x"], producer=1, batch_id=1),
        ):
            with pytest.raises(TokenError, match="token") as error:
                call()
            assert not error.value.retryable
            assert TOKEN not in str(error.value)


def test_a_member_with_another_token_is_passed_over(guarded: LogService) -> None:
    with (
        LogService(MemorySource(5), token="another-token-of-its-own") as other,
        client_of(other, guarded, token=TOKEN) as client,
    ):
        assert positions_of(list(client.read(1, 5))) == [1, 2, 3, 4, 5]


def test_a_plain_client_sends_the_token_as_a_header(guarded: LogService) -> None:
    with flight.connect(f"grpc://{guarded.endpoint}") as client:
        options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])
        (info,) = client.list_flights(options=options)
        assert info.total_records == 5
        for headers in ([], [(b"authorization", TOKEN.encode())], [(b"authorization", b"Basic " + TOKEN.encode())]):
            with pytest.raises(flight.FlightUnauthenticatedError, match="token"):
                list(client.list_flights(options=flight.FlightCallOptions(headers=headers)))
        with pytest.raises(flight.FlightUnauthenticatedError):  # while the call is made or when it ends
            client.do_put(flight.FlightDescriptor.for_command(b"{}"), pa.schema([("payload", pa.binary())]))[0].close()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": []},
        {"authorization": [""]},
        {"authorization": [b"\xff\xfe"]},
        {"other": [f"Bearer {TOKEN}"]},
    ],
)
def test_odd_headers_are_refused(headers: dict[str, list[str | bytes]]) -> None:
    with pytest.raises(TokenError):
        TokenCheck(TOKEN).check(headers)


def test_headers_are_taken_as_text_or_bytes_and_whatever_their_case() -> None:
    check = TokenCheck(TOKEN)
    check.check({"Authorization": [f"bearer {TOKEN}"]})
    check.check({"authorization": [f"Bearer {TOKEN}".encode()]})


@pytest.mark.parametrize("bind", ["0.0.0.0:0", "[::]:0", "10.1.2.3:7900", "example.org:7900"])
def test_off_loopback_a_token_is_required(bind: str) -> None:
    with pytest.raises(ConfigError, match="open to the network and needs a token; give token="):
        LogService(MemorySource(), bind=bind)


@pytest.mark.parametrize(
    ("token", "reason"), [("", "printable ASCII"), ("two words", "without blanks"), ("tökentökentökentö", "ASCII")]
)
def test_a_token_is_something_that_fits_a_header(token: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        LogService(MemorySource(), token=token)


def test_off_loopback_a_token_is_long_enough() -> None:
    with pytest.raises(ConfigError, match="at least 16 are needed"):
        LogService(MemorySource(), bind="0.0.0.0:0", token="short")
    with (
        LogService(MemorySource(3), bind="0.0.0.0:0", token=TOKEN) as service,
        client_of(f"127.0.0.1:{service.port}", token=TOKEN) as client,
    ):
        assert client.offsets().stable == 3


def test_loopback() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.9.9.9", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.0.1", "localhost.example.org", "")))


def test_tls_with_a_self_signed_certificate(tmp_path: Path) -> None:
    tls = self_signed("127.0.0.1", "localhost")
    (tmp_path / "cert.pem").write_bytes(tls.cert)
    (tmp_path / "key.pem").write_bytes(tls.key)
    source = MemorySource(5)
    loaded = Tls.load(tmp_path / "cert.pem", tmp_path / "key.pem")
    with LogService(source, FakeGroup(source), token=TOKEN, tls=loaded) as service:
        for roots in (tls.cert, tmp_path / "cert.pem", str(tmp_path / "cert.pem")):
            with client_of(service, token=TOKEN, tls_roots=roots) as client:
                assert positions_of(list(client.read(1, 5))) == [1, 2, 3, 4, 5]
        with client_of(service, token=TOKEN, tls_roots=tls.cert) as client:
            assert client.append([b"x"], producer=1, sequence=1) == (6, 6)


def test_strangers_and_plain_text_do_not_pass_for_tls(capfd: pytest.CaptureFixture[str]) -> None:
    tls = self_signed("127.0.0.1")
    with LogService(MemorySource(5), tls=tls) as service:
        stranger = self_signed("127.0.0.1").cert
        for options in ({"tls_roots": stranger}, {"tls_roots": None}):
            with client_of(service, timeout_s=0, **options) as client, pytest.raises(LogUnavailableError):
                client.offsets()


def test_a_certificate_for_another_name_needs_that_name(capfd: pytest.CaptureFixture[str]) -> None:
    tls = self_signed("orders.example")
    with LogService(MemorySource(5), tls=tls) as service:
        with client_of(service, timeout_s=0, tls_roots=tls.cert) as client, pytest.raises(LogUnavailableError):
            client.offsets()
        with client_of(service, tls_roots=tls.cert, tls_hostname="orders.example") as client:
            assert client.offsets().stable == 5


def test_bad_certificates_are_clear_errors(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*missing.pem"):
        Tls.load(tmp_path / "missing.pem", tmp_path / "missing.pem")
    with pytest.raises(ConfigError, match="in PEM"):
        Tls(b"nonsense", b"nonsense")
    mixed = Tls(self_signed("127.0.0.1").cert, self_signed("127.0.0.1").key)
    with pytest.raises(ConfigError, match="certificate and key belong together"):
        LogService(MemorySource(), tls=mixed)
