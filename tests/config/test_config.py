"""Settings: where they come from, what wins, and what is said of a bad one."""

import json
import pickle
import subprocess
import sys
from copy import copy, deepcopy
from dataclasses import Field, FrozenInstanceError, asdict, astuple, fields, replace
from pathlib import Path
from typing import Any

import pytest

import motet.config
from motet.config import Config, is_loopback, parse_endpoint
from motet.config.model import TIES
from motet.config.overrides import Settings
from motet.config.presets import PRESETS
from motet.config.reference import reference, variables
from motet.config.settings import SettingKind, key_of, setting_of
from motet.errors import ConfigError
from motet.log.journal.config import Fsync, JournalConfig
from motet.protocol.core.identity import Endpoint
from motet.protocol.core.units import MILLISECOND, SECOND
from motet.protocol.membership import DnsName, IpMulticast, MembershipConfig, SharedDirectory, StaticSeeds
from motet.protocol.wire.seal import SEAL_OVERHEAD
from tests.config.overrides import MODULE, overrides

KEY = "11" * 32
RANGES = [
    field
    for field in fields(Config)
    if setting_of(field).kind in (SettingKind.COUNT, SettingKind.SIZE, SettingKind.DURATION)
]
TIED = {name for tie in TIES for name in (tie[0], tie[2])}


def error_of(path: Path | None = None, **settings: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        Config.load(path, {}, **settings)
    return str(caught.value)


def varied(settings: dict[str, Any]) -> Config:
    return replace(Config(), **settings)


# Presets


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_what_membership_calls_by_that_name(name: str) -> None:
    config = getattr(Config, name)()
    assert config.member_config().membership == getattr(MembershipConfig, name)()


def test_the_default_is_a_lan() -> None:
    assert Config() == Config.lan() == Config.load(environ={}) == Config.from_env({})
    assert Config.local() != Config.lan() != Config.wan()


def test_a_preset_names_only_settings_and_only_where_it_differs() -> None:
    for preset in PRESETS.values():
        assert all(getattr(Config(), name) != value for name, value in preset.items())


def test_a_preset_takes_settings_as_people_write_them() -> None:
    config = Config.local(heartbeat="50ms", frame_bytes="16KiB", seeds=["a:1"], insecure=True)
    assert (config.heartbeat_ns, config.frame_bytes) == (50 * MILLISECOND, 16_384)
    assert (config.seeds, config.insecure) == (("a:1",), True)
    assert config.suspect_ns == Config.local().suspect_ns


def test_a_config_never_changes_and_can_be_varied() -> None:
    config = Config.local()
    with pytest.raises(FrozenInstanceError):
        config.frame_bytes = 1  # type: ignore[misc]
    assert replace(config, frame_bytes=1_400).frame_bytes == 1_400


# File, environment, arguments


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "motet.toml"
    file.write_text(
        'preset = "wan"\nheartbeat = "900ms"\nwindow_frames = 64\nframe_bytes = "1KiB"\n'
        'seeds = ["a:1", "b:2"]\ninsecure = true\npartitions = "all"\n'
    )
    config = Config.from_toml(file)
    wan = Config.wan()
    assert (config.heartbeat_ns, config.window_frames, config.frame_bytes) == (900 * MILLISECOND, 64, 1_024)
    assert (config.seeds, config.insecure, config.partitions) == (("a:1", "b:2"), True, "all")
    assert config.suspect_ns == wan.suspect_ns


def test_the_environment() -> None:
    config = Config.from_env(
        {
            "MOTET_PRESET": "local",
            "MOTET_HEARTBEAT": "80ms",
            "MOTET_WINDOW_FRAMES": "12",
            "MOTET_SEEDS": "a:1, b:2,",
            "MOTET_INSECURE": "Yes",
            "MOTET_MAY_BOOTSTRAP": "0",
            "MOTET_KEYS": f"3:{KEY}",
            "PATH": "/bin",
        }
    )
    assert (config.heartbeat_ns, config.window_frames, config.seeds) == (80 * MILLISECOND, 12, ("a:1", "b:2"))
    assert (config.insecure, config.may_bootstrap, config.keys) == (True, False, (f"3:{KEY}",))
    assert config.frame_bytes == Config.local().frame_bytes


def test_what_belongs_to_others_in_the_environment_is_left_alone() -> None:
    environ = {
        "MOTET_GROUP": "g",
        "MOTET_BIND": "x",
        "MOTET_NAME": "a",
        "MOTET_JOURNAL": "d",
        "MOTET_SERVICE_HOST": "10.0.0.1",
        "MOTET_SERVICE_PORT": "7800",
        "MOTET_PORT": "udp://10.0.0.1:7800",
        "MOTET_PORT_7800_UDP": "x",
        "MOTET_PORT_7800_UDP_ADDR": "x",
        "MOTET_NODES_SERVICE_PORT_ADMIN": "1",
    }
    assert Config.from_env(environ) == Config()


def test_arguments_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "motet.toml"
    file.write_text('preset = "wan"\nheartbeat = "1s"\nsuspect = "9s"\nverify = "8s"\n')
    config = Config.load(file, {"MOTET_SUSPECT": "7s", "MOTET_VERIFY": "6s"}, verify="5s")
    assert (config.heartbeat_ns, config.suspect_ns, config.verify_ns) == (SECOND, 7 * SECOND, 5 * SECOND)
    assert config.frame_bytes == Config.wan().frame_bytes


def test_the_last_preset_wins_and_does_not_undo_single_settings(tmp_path: Path) -> None:
    file = tmp_path / "motet.toml"
    file.write_text('preset = "wan"\nwindow_frames = 7\n')
    config = Config.load(file, {"MOTET_PRESET": "local"})
    assert config == Config.local(window_frames=7)


def test_the_environment_may_name_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("window_frames = 1")
    (tmp_path / "b.toml").write_text("window_frames = 2")
    environ = {"MOTET_CONFIG": str(tmp_path / "a.toml")}
    assert Config.load(environ=environ).window_frames == 1
    assert Config.load(tmp_path / "b.toml", environ).window_frames == 2


def test_the_real_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTET_WINDOW_FRAMES", "99")
    assert Config.load().window_frames == Config.from_env().window_frames == 99


def test_every_setting_can_be_said_in_the_environment() -> None:
    config = Config.wan(seeds=["h:1"], trace_file="t.jsonl", retention_age="7d")
    shown = config.as_text()
    environ = {variable: text for variable, text in zip(variables(), shown.values(), strict=True) if text}
    assert Config.from_env(environ) == config


# Bad ones


@pytest.mark.parametrize("field", RANGES, ids=lambda field: field.name)
def test_a_number_outside_what_is_allowed_is_named(field: Field[Any]) -> None:
    setting, key = setting_of(field), key_of(field)
    for value in (setting.least - 1, setting.most + 1):
        with pytest.raises(ConfigError) as caught:
            varied({field.name: value})
        assert str(caught.value).startswith(f"{key} = ")
        assert " is outside what is allowed: " in str(caught.value)


@pytest.mark.parametrize("field", [f for f in RANGES if f.name not in TIED], ids=lambda field: field.name)
def test_the_limits_themselves_are_allowed(field: Field[Any]) -> None:
    for value in (setting_of(field).least, setting_of(field).most):
        assert getattr(varied({field.name: value}), field.name) == value


@pytest.mark.parametrize(("name", "factor", "other"), TIES)
def test_a_duration_that_another_one_forbids_is_named(name: str, factor: int, other: str) -> None:
    config = Config()
    too_short = factor * getattr(config, other) - 1
    with pytest.raises(ConfigError) as caught:
        replace(config, **{name: too_short})
    keys = [part.removesuffix("_ns") for part in (name, other)]
    unit = "ns" if name.endswith("_ns") else ""
    assert str(caught.value).startswith(f"{keys[0]} = {too_short}{unit} is too small for {keys[1]} = ")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"heartbeat": "2 parsecs"},
            "heartbeat = '2 parsecs' cannot be read; allowed is a number with a unit (ns, us,",
        ),
        ({"heartbeat": 5}, "heartbeat = 5 cannot be read; allowed is a duration such as 250ms (1ms to 1min)"),
        ({"heartbeat": "2min"}, "heartbeat = 2min is outside what is allowed: 1ms to 1min"),
        ({"heartbeat": "700ms"}, "suspect = 1250ms is too small for heartbeat = 700ms; allowed is 1400ms or more"),
        ({"frame_bytes": "1GiB"}, "frame_bytes = 1GiB is outside what is allowed: 512B to 65507B"),
        (
            {"frame_bytes": "big"},
            "frame_bytes = 'big' cannot be read; allowed is a number of bytes, or one with a unit",
        ),
        ({"frame_bytes": 1.5}, "frame_bytes = 1.5 cannot be read; allowed is a size such as 64KiB (512B to 65507B)"),
        ({"frame_bytes": True}, "frame_bytes = True cannot be read; allowed is a size such as 64KiB"),
        ({"window_frames": "many"}, "window_frames = 'many' cannot be read; allowed is a whole number (1 to 1048576)"),
        ({"window_frames": "-1"}, "window_frames = -1 is outside what is allowed: 1 to 1048576"),
        ({"insecure": "maybe"}, "insecure = 'maybe' cannot be read; allowed is true or false"),
        ({"transport": "tcp"}, "transport = 'tcp' is outside what is allowed: unicast, multicast"),
        ({"strategy": 7}, "strategy = 7 cannot be read; allowed is one of a few words (window, continuous)"),
        ({"partitions": "none"}, "partitions = 'none' is outside what is allowed: primary, all"),
        ({"journal_fsync": "maybe"}, "journal_fsync = 'maybe' is outside what is allowed: interval, always, never"),
        ({"token": 7}, "token = (not shown) cannot be read; allowed is a text"),
        ({"seeds": [1]}, "seeds = [1] cannot be read; allowed is a list of texts"),
        (
            {"seeds": ["nowhere"]},
            "seeds = 'nowhere' is no endpoint; allowed is HOST:PORT with a port of 0 to 65535, for",
        ),
        ({"discovery_dns": "motet"}, "discovery_dns = 'motet' is no endpoint"),
        ({"discovery_multicast": "10.0.0.1:1"}, "discovery_multicast = '10.0.0.1' is outside what is allowed: an IP"),
        (
            {"multicast_group": "here"},
            "multicast_group = 'here' is outside what is allowed: an IP multicast group, 224.0",
        ),
        ({"keys": "hunter2"}, "key number 1 (7 characters) is no key; allowed are 32 bytes as base64"),
        (
            {"admin_bind": "0.0.0.0:7900"},
            "admin_bind = 0.0.0.0:7900 can be reached from other machines, and there is no",
        ),
        (
            {"log_bind": "db:1"},
            "log_bind = db:1 can be reached from other machines, and there is no token: anybody could",
        ),
        (
            {"trace_file": "t.csv"},
            "trace_file = 't.csv' has no known format; it must end in .jsonl, .arrow or .parquet",
        ),
        ({"preset": "moon"}, "preset = 'moon' is outside what is allowed: local, lan, wan"),
        ({"heartbeet": "1s"}, "there is no setting heartbeet; did you mean heartbeat?"),
        ({"xyzzy": "1s"}, "there is no setting xyzzy; there are: ack_max, ack_min, admin_bind, "),
    ],
)
def test_a_bad_value_is_told_with_what_is_allowed(settings: dict[str, Any], message: str) -> None:
    assert error_of(**settings).startswith(message)


def test_a_bad_value_in_a_file_is_told_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "motet.toml"
    for text, message in (
        ('heartbeat = "1h"', "heartbeat = 1h is outside what is allowed: 1ms to 1min"),
        ('heart_beat = "1s"', "heart_beat is unknown; did you mean heartbeat?"),
        ("[security]\nkeys = []", "[security] is a table; settings stand at the top level of the file"),
        ('preset = "lAn"', "preset = 'lAn' is outside what is allowed: local, lan, wan"),
    ):
        file.write_text(text)
        assert error_of(file).startswith(f"in {file}: {message}")


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    file = tmp_path / "motet.toml"
    assert error_of(file) == f"the config file {file} cannot be read: No such file or directory"
    file.write_text("heartbeat = 1s")
    assert error_of(file).startswith(f"the config file {file} is not valid TOML: ")
    file.write_bytes(b"\xff\xfe")
    assert error_of(file).startswith(f"the config file {file} is not valid TOML: ")


def test_a_bad_value_in_the_environment_is_told_with_the_variable() -> None:
    for name, value, message in (
        ("MOTET_HEARTBEAT", "soon", "in the environment, MOTET_HEARTBEAT: heartbeat = 'soon' cannot be read"),
        ("MOTET_TRANSPORT", "tcp", "in the environment, MOTET_TRANSPORT: transport = 'tcp' is outside what is allowed"),
        ("MOTET_HEARTBEET", "1s", "MOTET_HEARTBEET in the environment is unknown; did you mean MOTET_HEARTBEAT?"),
        ("MOTET_PRESET", "", "in the environment, MOTET_PRESET: preset = '' is outside what is allowed"),
    ):
        with pytest.raises(ConfigError) as caught:
            Config.from_env({name: value})
        assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"frame_bytes": "64KiB"}, "frame_bytes = '64KiB' is no whole number; Config.load(frame_bytes=...) parses"),
        ({"heartbeat_ns": 0.5}, "heartbeat_ns = 0.5 is no whole number; Config.load(heartbeat=...) parses what people"),
        ({"insecure": 1}, "insecure = 1 is neither True nor False"),
        ({"seeds": ["a:1"]}, "seeds = ['a:1'] is no tuple of texts; Config.load(seeds=...) parses what people write"),
        ({"keys": KEY}, "keys = (not shown) is no tuple of texts"),
        ({"trace_file": None}, "trace_file = None is no text"),
    ],
)
def test_the_class_itself_takes_only_what_it_is_made_of(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(**settings)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)


# Secrets, and who may reach us


def test_secrets_are_never_shown() -> None:
    config = Config.local(keys=[KEY], token="open sesame")
    assert KEY not in repr(config)
    assert "sesame" not in repr(config)
    assert (config.as_text()["keys"], config.as_text()["token"]) == ("(not shown)", "(not shown)")
    assert Config().as_text()["token"] == ""


def test_without_a_key_a_member_stays_on_loopback() -> None:
    everywhere, here = Endpoint("0.0.0.0", 7800), Endpoint("127.0.0.1", 7800)
    Config().check_bind(here)
    with pytest.raises(ConfigError) as caught:
        Config().check_bind(everywhere)
    assert str(caught.value) == (
        "bind = 0.0.0.0:7800 can be reached from other machines, and there is no key: anybody could send to the group"
        "; give the same keys to all members (`motet key` makes one), bind to 127.0.0.1, or set insecure = true"
    )
    Config.lan(insecure=True).check_bind(everywhere)
    Config.lan(keys=[KEY]).check_bind(everywhere)


def test_without_a_token_services_stay_on_loopback() -> None:
    assert Config.lan(admin_bind="127.0.0.1:1", log_bind="localhost:2").log_bind == "localhost:2"
    assert Config.lan(admin_bind="0.0.0.0:1", token="t").admin_bind == "0.0.0.0:1"
    assert Config.lan(admin_bind="0.0.0.0:1", insecure=True).admin_bind == "0.0.0.0:1"
    with pytest.raises(ConfigError, match=r"set token, or bind to 127\.0\.0\.1$"):
        Config.lan(log_bind="0.0.0.0:1", insecure=True)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *((host, True) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")),
        *((host, False) for host in ("0.0.0.0", "::", "10.0.0.1", "host.example", "")),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


# The configs of the layers below


def test_the_seal_is_part_of_the_frame() -> None:
    assert Config().member_config().frame_bytes == Config().frame_bytes
    assert Config.lan(keys=[KEY]).member_config().frame_bytes == Config().frame_bytes - SEAL_OVERHEAD
    smallest = Config.lan(keys=[KEY], frame_bytes=512).member_config()
    assert smallest.multicast_sized.body_bytes > 64


def test_settings_reach_the_machines() -> None:
    config = Config.local(
        window_frames=9, order_window_frames=5, give_up="3s", order_ask="7ms", static_quorum=2, state_window_chunks=3
    ).member_config(wants_state=True)
    assert config.unicast.capacity == config.multicast.capacity == 9
    assert config.ordering is not None
    assert config.membership is not None
    assert (config.ordering.window, config.ordering.ask_ns) == (5, 7 * MILLISECOND)
    assert config.unicast.give_up_ns == 3 * SECOND
    assert Config.lan(sync_timeout="7s").member_config().unicast.sync_timeout_ns == 7 * SECOND
    assert config.membership.engine.static_quorum == 2
    assert (config.membership.transfer.window, config.membership.transfer.wants_state) == (3, True)


def test_the_journal_gets_its_settings() -> None:
    made = Config.lan(journal_fsync="always", retention_age="7d", retention_bytes="1GiB", journal_segment_bytes="8MiB")
    journal = made.journal_config()
    assert (journal.fsync, journal.waits_for_disk) == (Fsync.ALWAYS, True)
    assert (journal.retention_bytes, journal.segment_bytes) == (1 << 30, 8 << 20)
    assert journal.retention_ns == 7 * 86_400 * SECOND
    assert Config().journal_config() == JournalConfig()
    ordering = made.member_config(waits_for_disk=journal.waits_for_disk).ordering
    assert ordering is not None
    assert ordering.waits_for_disk


def test_every_source_of_discovery() -> None:
    config = Config.lan(
        seeds="a:1,b:2", discovery_multicast="239.1.2.3:9", discovery_dns="motet.svc:7800", discovery_directory="/d"
    ).member_config([Endpoint("b", 2), Endpoint("c", 3)])
    assert config.membership is not None
    assert config.membership.discovery.sources == (
        StaticSeeds((Endpoint("b", 2), Endpoint("c", 3), Endpoint("a", 1))),
        IpMulticast("239.1.2.3", 9),
        DnsName("motet.svc", 7800),
        SharedDirectory("/d"),
    )


def test_a_config_as_a_dict_shows_no_secret() -> None:
    """`asdict` is what people print, log and send to a tracker of errors."""
    config = Config.lan(keys=[KEY], token="a-token-of-some-length")
    for shown in (str(asdict(config)), str(astuple(config)), json.dumps(asdict(config)), repr(config)):
        assert KEY not in shown
        assert "a-token-of-some-length" not in shown
    assert asdict(config)["keys"] == ("(not shown)",)
    assert repr(config.keys) == "((not shown),)"


def test_secrets_are_the_same_in_every_copy_of_a_config() -> None:
    config = Config.lan(keys=[KEY], token="a-token-of-some-length")
    for same in (copy(config), deepcopy(config), replace(config, seeds=("a:1",)), pickle.loads(pickle.dumps(config))):
        assert (same.keys, same.token) == ((KEY,), "a-token-of-some-length")
    assert Config(keys=(KEY,)).keys == (KEY,)


def test_a_key_of_zeros_is_refused() -> None:
    assert "is nothing but zeros, as of a secret that was never set" in error_of(keys=["00" * 32])


def test_keys_make_a_ring() -> None:
    assert Config().keyring() is None
    ring = Config.lan(keys=[f"2:{KEY}", f"1:{'22' * 32}"]).keyring()
    assert ring is not None
    assert (ring.current, set(ring.keys)) == (2, {1, 2})


# Endpoints, and the reference


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [("127.0.0.1:7800", ("127.0.0.1", 7800)), (" host:0 ", ("host", 0)), ("[::1]:65535", ("::1", 65535))],
)
def test_an_endpoint_is_read(text: str, endpoint: tuple[str, int]) -> None:
    assert parse_endpoint(text) == endpoint


@pytest.mark.parametrize(
    "text", ["", "host", "host:", ":1", "host:65536", "host:-1", "::1:80", "[]:1", "host:" + "1" * 9]
)
def test_what_is_no_endpoint_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match="is no endpoint; allowed is HOST:PORT"):
        parse_endpoint(text, "bind")


def test_every_setting_is_explained() -> None:
    for field in fields(Config):
        about = setting_of(field).about
        assert 20 < len(about) < 130
        assert "\n" not in about
        assert about[0].isupper(), field.name
        assert about.endswith("."), field.name


def test_the_reference_is_up_to_date() -> None:
    page = Path(__file__).parent.parent.parent / "docs" / "reference" / "config.md"
    assert page.read_text(encoding="utf-8") == reference(), (
        'refresh it: python -c "from motet.config.reference import reference; print(reference(), end=str())" > '
        "docs/reference/config.md"
    )


def test_a_config_needs_no_asyncio() -> None:
    """The façade's own imports are left out: it may be as large as it likes."""
    package = Path(motet.config.__file__).parent.parent
    program = (
        "import sys, types; motet = types.ModuleType('motet'); motet.__path__ = [sys.argv[1]]; "
        "sys.modules['motet'] = motet; import motet.config; sys.exit('asyncio' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(package)], check=False).returncode == 0


def test_keyword_arguments_are_typed_as_the_settings_are() -> None:
    assert set(Settings.__annotations__) == {key_of(field) for field in fields(Config)}
    assert MODULE.read_text(encoding="utf-8") == overrides(), "refresh it: python -m tests.config.overrides"
