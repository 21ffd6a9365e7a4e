"""The studies of the paper, and one on further tables."""

from __future__ import annotations

from dataclasses import replace

from lvgp.study.cases import Arm, ProblemCase, Study, TableCase

_PLUG_IN = (Arm("mle", {"method": "mle"}), Arm("map", {"method": "map"}))
_MAPS_TOO = Arm("bayes", {"method": "bayes"})
# most studies score predictions only, so chains need not go on until the latent maps are known too
_METHODS = (*_PLUG_IN, Arm("bayes", {"method": "bayes", "converge": "predictions"}))
# M2AX posteriors have rare modes, ten minutes a fit to weigh; scores hardly change by it
_BOUNDED = (*_PLUG_IN, replace(_METHODS[-1], options={**_METHODS[-1].options, "draws": 250}))
_M2AX = (
    "Elastic moduli of 223 M2AX phases: Balachandran et al., Sci. Rep. 6, 19660 (2016), "
    "doi:10.1038/srep19660; expected as m2ax/m2ax.csv with columns M, A, X, shear_modulus_GPa, "
    "bulk_modulus_GPa, youngs_modulus_GPa and the orbital radii"
)
_ABO3 = (
    "ABO3 perovskites: Emery and Wolverton, Sci. Data 4, 170153 (2017), "
    "doi:10.1038/sdata.2017.153; expected as abo3/abo3.csv with columns A, B and "
    "formation_energy_eV_per_atom"
)
_SPINELS = (
    "270 lacunar spinels A Ma Mb3 Q8: Wang et al., Appl. Phys. Rev. 7, 041403 (2020); expected as "
    "spinels/spinels.csv with columns A, Ma, Mb, Q, bandgap_eV and stability_eV"
)
_RADII = (
    "M_p_radius_au",
    "M_d_radius_au",
    "M_s_radius_au",
    "A_s_radius_au",
    "A_p_radius_au",
    "X_s_radius_au",
    "X_p_radius_au",
)


def _m2ax(target: str) -> TableCase:
    sites = ("M", "A", "X")
    file, column = "m2ax/m2ax.csv", f"{target}_modulus_GPa"
    return TableCase(file, column, 100, sites, sites, _RADII, _M2AX)


def _spinel(target: str, train: int) -> TableCase:
    sites = ("A", "Ma", "Mb", "Q")
    return TableCase("spinels/spinels.csv", target, train, sites, sites, (), _SPINELS)


def _sparse(rule: str, method: str) -> Arm:
    settings = {"method": method, "approximation": rule, "n_inducing": 50}
    if method == "bayes":
        settings |= {"converge": "predictions", "time_limit": 600}
    return Arm(f"{rule}-{method}", settings)


def _alpha(alpha: float) -> Arm:
    settings = {"method": "bayes", "converge": "predictions", "priors": {"alpha": alpha}}
    return Arm(f"alpha-{alpha:g}", settings)


_HALIDES = ("cation", "halide_1", "halide_2", "halide_3", "solvent")
_BLOCKS = ("block_1", "block_2", "block_3", "block_4")

_ALL = (
    Study(
        "engineering",
        "Borehole, OTL circuit and piston with 2, 3 and 4 observations a level",
        tuple(
            ProblemCase(problem, per_level)
            for problem in ("borehole", "otl_circuit", "piston")
            for per_level in (2, 3, 4)
        ),
        _METHODS,
    ),
    Study(
        "spinels",
        "Lacunar spinels: bandgap and stability from 50, 75 and 100 of 270 rows",
        tuple(
            _spinel(target, train)
            for target in ("bandgap_eV", "stability_eV")
            for train in (50, 75, 100)
        ),
        _METHODS,
    ),
    Study(
        "m2ax",
        "M2AX phases: three moduli from 100 of 223 rows, LVGP and GP with descriptors",
        tuple(_m2ax(target) for target in ("youngs", "shear", "bulk")),
        (
            *_BOUNDED,
            *(Arm(f"descriptors-{arm.name}", arm.options, descriptors=True) for arm in _BOUNDED),
        ),
    ),
    Study(
        "abo3",
        "ABO3 perovskites: formation energy from 1000 of 5276 rows, exact MAP and sparse models",
        (
            TableCase(
                "abo3/abo3.csv",
                "formation_energy_eV_per_atom",
                1000,
                ("A", "B"),
                ("A", "B"),
                (),
                _ABO3,
            ),
        ),
        (
            Arm("exact-map", {"method": "map", "restarts": 4}),
            *(_sparse(rule, method) for rule in ("fitc", "vfe") for method in ("map", "bayes")),
        ),
        replicates=3,
    ),
    Study(
        "hyperprior",
        "Does the prior of the latents' precision matter? alpha from 1.1 to 3",
        (ProblemCase("piston", 2), _m2ax("shear")),
        tuple(_alpha(alpha) for alpha in (1.1, 1.5, 2.0, 2.5, 3.0)),
    ),
    Study(
        "latent-maps",
        "Maps of MAP and representative maps of full Bayes beside the truth",
        (ProblemCase("borehole", 2), ProblemCase("borehole", 4)),
        (_PLUG_IN[1], _MAPS_TOO),
        replicates=10,
        maps=True,
    ),
    Study(
        "more-tables",
        "Perovskite binding energies, polymer dielectrics and servo rise times",
        (
            TableCase(
                "hoip_binding/hoip_binding.csv",
                "binding_energy_kcal_per_mol",
                60,
                _HALIDES,
                _HALIDES,
                (),
                "Herbol et al., npj Comput. Mater. 4, 51 (2018), doi:10.1038/s41524-018-0106-7",
            ),
            TableCase(
                "polymer_dielectric/polymer_dielectric.csv",
                "dielectric_total",
                100,
                _BLOCKS,
                _BLOCKS,
                (),
                "Mannodi-Kanakkithodi et al., Sci. Rep. 6, 20952 (2016), doi:10.1038/srep20952",
            ),
            TableCase(
                "servo/servo.csv",
                "log10_rise_time",
                80,
                ("motor", "screw", "pgain", "vgain"),
                ("motor", "screw"),
                (),
                "Quinlan (1992), UCI Machine Learning Repository, doi:10.24432/C5Q30F",
            ),
        ),
        _METHODS,
    ),
)
STUDIES: dict[str, Study] = {study.name: study for study in _ALL}
