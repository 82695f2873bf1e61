"""Words of generated tables: what the rows are, and the names of columns. Each split has its own themes."""

from __future__ import annotations

from dataclasses import dataclass

from envsuite.envs.datascicoding.generated.graphs import TEST, TRAIN, VALIDATION


@dataclass(frozen=True)
class Theme:
    """Words of one subject. The names say nothing about causes, which are drawn at random."""

    rows: str
    question: str
    """outcome of a row, if it is one of two classes"""
    amount: str
    """outcome of a row, if it is a number"""
    columns: tuple[str, ...]


def _theme(rows: str, question: str, amount: str, columns: str) -> Theme:
    return Theme(rows, question, amount, tuple(columns.split()))


THEMES: dict[str, tuple[Theme, ...]] = {
    TRAIN: (
        _theme(
            "loans of a library",
            "is the item returned late",
            "days until the return",
            "age visits distance shelf pages price renewals holds fines weekday branch genre edition language copies "
            "weight queue room season format deposit reader_group stamps rating",
        ),
        _theme(
            "batches of a bakery",
            "is the batch rejected",
            "loaves sold",
            "flour water salt yeast proof_time oven_load heat humidity draught mixing rest batch_size shift mill "
            "grain dough_age tray crust steam butter order_lead baker_years tins glaze",
        ),
        _theme(
            "trips of a ferry",
            "does the ferry leave late",
            "minutes of the crossing",
            "wind swell cars lorries passengers tide fuel crew visibility current rain ramp hour berth heading "
            "cargo speed_limit buoys ballast draft bookings pilot_years load_time engine_age",
        ),
        _theme(
            "plots of a nursery",
            "does the seedling fail",
            "height of the seedling",
            "light soil_ph nitrogen potash depth spacing moisture warmth slope stones mulch seed_age bench variety "
            "watering cover row drainage peat shade lime vents pot_size mites",
        ),
    ),
    VALIDATION: (
        _theme(
            "jobs of a print shop",
            "does the job need a reprint",
            "hours of press time",
            "paper_weight ink sheets colours gloss press_age humidity fold trim drying plates lead_time proofs margin "
            "stock operator_years cut_size coating pallet speed rollers perforation bleed tint",
        ),
        _theme(
            "calls of a repair service",
            "is a second visit needed",
            "length of the visit",
            "machine_age distance parts floor waiting load_cycles noise voltage filter warranty visits_before "
            "technician_years model brand region temperature hours_run pressure leak_rate belt seal fuses scale grease",
        ),
    ),
    TEST: (
        _theme(
            "hives of an apiary",
            "is the colony weak in spring",
            "kilograms of honey",
            "frames brood mites pollen altitude forage rain_days queen_age feed hive_age shade traffic smoke nectar "
            "wax vents site strain winter_days combs sugar supers wind stand",
        ),
        _theme(
            "castings of a foundry",
            "does the casting crack",
            "strength of the casting",
            "pour_heat sand_moisture carbon silicon wall draft cooling mould_age riser alloy scrap furnace binder "
            "vent_area core slag flow tilt grain_size gate coating shake_time chill lining",
        ),
        _theme(
            "orders of a seed shop",
            "is the order returned",
            "weight of the order",
            "basket items discount pages_seen hour weekday region visits stock packing payment age_of_account "
            "coupons returns_before distance newsletter season gift device rating lead_time bundles notes_left zone",
        ),
    ),
}
MARKERS = ("sheet", "ledger", "desk", "form", "office", "register")
MARKER_NOTE = "says how other columns are entered, and has no bearing of its own"
UNRELATED_NOTES = (
    "kept for the archive, and has no bearing on the result",
    "a leftover of the old form, without any bearing on the result",
)
TOGETHER_NOTE = "what it means for the result depends on {other}"
LEVEL_WORDS = (
    ("amber", "birch", "clay", "dune", "elm", "fern"),
    ("north", "south", "east", "west", "centre", "coast"),
    ("basic", "plain", "mixed", "fine", "dense", "open"),
    ("alpha", "beta", "gamma", "delta", "kappa", "sigma"),
)
ON_TIME_NOTES = (
    "entered when the case is opened",
    "measured before the result is known",
    "known for every case from the start",
    "read off at the beginning",
    "recorded on the first day of the case",
)
TRAP_NOTES = (
    "entered once the result is known; later cases are still open, and the form repeats the entry of an older one",
    "filled in at the review after the result; in later cases it holds the value of some other, finished case",
    "copied from the final report; where that is still missing, as in all later cases, from another case's report",
    "settled at the close of the case; until then the field keeps what was left in it by an unrelated case",
)
CODE_NOTES = (
    "written as letter, line and serial number; only the line, the part between the hyphens, has a meaning",
    "a tag of site, line and running number; site and running number are arbitrary, "
    "the part between the hyphens is not",
)
NUMBER_CODE_NOTE = "the digits name a kind and are no amount"
SENTINEL_NOTE = "{value} means that nothing was recorded"
