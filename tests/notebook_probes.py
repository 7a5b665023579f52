"""What the tests of a notebook's values look at: items of a dictionary that its last cell prints."""

from __future__ import annotations

PROBES = {
    "00_quickstart": """
        "best": best, "curves": progress, "held_out": held_out, "regret": regret,
        "rules": dispatcher.to_source(),
        "portfolio": [kernel.key for kernel in portfolio.schemes],
        "slowdown_at_128": dispatched(128), "largest": mean_slowdown([largest], held_out),
        "at_128": dispatcher.scheme(dl.Shape.of(T=128)).key, "curve": portfolio.curve,
    """,
    "01_dynamic_shapes_and_padding": """
        "mean": mean, "sixteens": sixteens, "by_hand": by_hand, "policies": policies.to_dict(),
        "tiles": tiles.mean().to_dict(), "hours": hours, "joint": cost["total_seconds"], "eight": eight,
        "static": static, "padded": {str(T): us for T, us in padded.items()},
        "whole": whole, "stepped": stepped,
    """,
    "02_search_space": """
        "errors": errors, "size": len(space), "same": longer == keys(dense),
        "fewer": len(keys(dense) - deeper),
        "heights": sorted({tile.rows for tile in space}), "fit": fit, "executed": executed, "worth": worth,
        "line": line, "mean": mean, "worst": worst, "largest": largest,
        "rejected": int(space.rejections["rejected"].sum()),
    """,
    "03_measurement": """
        "quantiles": noise["percent"].quantile([0.5, 0.9, 0.99]).tolist(), "table": table.to_dict(),
        "luck": luck, "naive": naive, "honest": honest, "within": within.to_dict(), "wins": wins.to_dict(),
        "colder": colder.to_dict(),
        "odd": {T: dict(odd["us"].loc[T]) | {"speedup": odd["speedup"].loc[T].max()} for T in odd.index},
        "leads": leads.set_index(["cache", "contender"])["geomean_speedup"]["hot"].to_dict(),
        "states": sorted(sixteen["cache"].unique()), "own": own,
        "apart": apart_by, "width": interval.high - interval.low,
    """,
    "04_cost_model": """
        "agree": all(
            abs(f_pad(k, T) - dl.f_pad({"rows": T, "cols": dense.N, "depth": dense.K}, k.kernel.tile)) < 1e-12
            for k in kernels[::50] for T in lengths
        ),
        "seen": len(seen), "unseen": len(unseen), "once": [str(r.shape) for r in once],
        "best": [f"T={best_length(r.scheme)}" for r in once], "error": float(np.median(error[unseen])),
        "flat": by_itself[row].tolist(), "quality": quality.T.to_dict(), "by_library": by_library,
        "run": len(run.records), "judges": len(judges), "accuracy": accuracy.to_dict(), "lost": lost,
        "importances": importances.to_dict(), "line": line,
    """,
    "05_joint_search": """
        "raw": raw, "own": own, "error": error, "home": home["T"], "joint": joint, "alone": alone,
        "mine": [[r.scheme.key, r.shape["T"]] for r in mine], "race": race.to_dict("records"),
        "state": background.state, "trials": background.result.trials, "line": line,
        "seen": panel.state.trials, "more": more, "contested": contested.to_dict("index"),
        "parts": ablation["ratio"].tolist(),
        "faster": scaling(tunings, Fleet(1), [16]).set_index("proposed")["times_faster"].to_dict(),
    """,
    "06_dispatch": """
        "winners": winners.to_dict(), "mine": mine, "by_hand": by_hand, "curve": portfolio.curve,
        "rules": rules.to_dict("index"), "least": least, "often": often, "regret": regret,
        "source": dispatcher.to_source(), "plans": [p.key for p in dispatcher.schemes], "line": line,
        "tuned": sorted(tuned), "far": dispatcher.scheme(dl.Shape.of(T=1000)).key,
        "shown": len(explorer.frame),
        "portfolio": [kernel.key for kernel in portfolio.micro_kernels],
    """,
    "07_evaluation": """
        "over": over, "packed": packed, "verdicts": {r: verdicts("hot", r) for r in packed}, "worst": worst,
        "speedup": speedup.to_dict(), "near": near["seconds_median"].to_dict(),
        "means": beside.apply(geomean).to_dict(),
        "coverage": float(np.mean([i.low <= truth <= i.high for i in intervals])),
        "alone": [float(alone.min()), float(alone.max())],
        "paired": [float(paired.min()), float(paired.max())],
        "paper": theirs["dietcode"].to_dict(), "ours": beside["dietlab, Zen 4"].to_dict(),
        "shares": shares["hot"].dropna().to_dict(), "line": oracle,
        "summary": {s.contender: s.geomean_speedup for s in report.summary if s.cache == "hot"},
    """,
    "08_your_own_operator": """
        "shares": shares, "failures": run.failures, "trials": run.trials, "reasons": len(space.rejections),
        "difference": float(np.abs(dense.reference(inputs) - reference(conv, x, w)).max()),
        "dims": str(dense), "plans": {T: op.scheme(T) for T in (1, 43, 500)}, "known": list(op.schemes),
        "shape": list(convolve(frames(9)).shape), "source": dispatcher.to_source(),
    """,
    "09_bench": """
        "by_hand": by_hand, "threads": first["threads"], "cache": first["cache"],
        "contenders": sorted(set(frame["contender"])),
    """,
    "11_every_layer": """
        "measured_on": sorted({layer(r) for r in file.records}), "tuned": layers, "price": price,
        "tiles": tiles.groupby("T")["tile"].agg(lambda t: t.value_counts(normalize=True).iloc[0]).to_dict(),
        "accuracy": accuracy.min().min(), "kernels": [kernel.key for kernel in dispatcher.micro_kernels],
        "source": dispatcher.to_source(), "own": over["own"].dropna().to_dict(),
        "vendors": vendors.groupby("seen")["geomean_speedup"].agg(["size", "mean"]).to_dict("index"),
        "plan": dispatcher.scheme(dl.Shape.of(T=43, N=1000, K=1000)).key,
    """,
    "12_bert": """
        "best": table.loc[table["contender"] == BEST, ["batch", "cores", "geomean"]].values.tolist(),
        "curves": sorted(curves), "lengths": sorted(curves.dropna().index), "dense": (dense[64], flops[64]),
        "share": share.to_dict(),
    """,
    "13_dense": """
        "rows": theirs.index.tolist(), "reported": theirs.tolist(), "over": vendor.to_dict(),
        "means": means.to_dict(), "ansor": ansor.dropna(how="all").to_dict(), "waste": waste(80, 128),
        "one": one.dropna(how="all").to_dict(),
    """,
    "14_batched_products": """
        "useful": {T: useful(T, 16, 16) for T in (16, 17, 32)}, "regret": regret.mean().max(),
        "over": {name: column.dropna().tolist() for name, column in over.items()},
    """,
    "15_tuning_time": """
        "ratios": {w: cost(facts)["ratio, measured (x)"] for w, facts in tuned.items()},
        "joint": {w: facts["total_seconds"] for w, facts in tuned.items()},
        "eight": {w: list(facts["ansor_seconds"].values()) for w, facts in tuned.items()},
        "extrapolated": lengths.to_dict(), "spent": list(spent.values()), "layers": layers,
    """,
    "16_local_padding": """
        "layer": reported[layer].to_dict(), "product": reported[product].to_dict(), "agree": agree,
        "times": times.to_dict(), "executed": {T: executed(T, 128) for T in (120, 128, 960)},
        "rows": scheme.rows, "ours": [treatments(r).iloc[:, -1].dropna().to_dict() for r in reports],
    """,
    "17_ablations": """
        "models": told(models)["mean"].to_dict(), "lost": lost, "ideas": parts.min(axis=1).to_dict(),
        "split": {n: by_kind.to_dict() for n, by_kind in split.items()},
        "dispatched": told(dispatched)["mean"].to_dict(),
    """,
    "18_served_models": """
        "waste": {name: f.groupby("policy")["waste"].first().to_dict() for name, f in paddings.items()},
        "steps": {name: f[f.contender == "dietlab"].set_index("policy").speedup.to_dict()
                  for name, f in paddings.items()},
        "models": sorted({r.workload["operator"] for r in served.values()}),
        "bert": sorted(Model("bert-base", 1).layers()),
        "layers": sorted({*decoder.layers(), *experts.layers()}),
    """,
    "19_gpu_records": """
        "means": means.to_dict("index"), "shapes": len(shapes), "regret": regret["regret"].tolist(),
        "portfolio": regret["portfolio"].tolist(), "sizes": sizes.mean(axis=1).to_dict(),
        "models": {f"{m} {n}": row["pairwise"] for (m, n), row in models.iterrows()},
        "gain": [gain.min().min(), gain.max().max()], "lengths": by_length.index.tolist(),
    """,
    "20_mini_dietcode": """
        "known": len(known), "leaves": int(leaves), "lost": [*lost.values()],
        "errors": errors.to_dict("index"),
        "alone": (truth[alone] / truth.min(axis=0)).tolist(), "ours": (ours / truth.min(axis=0)).tolist(),
        "own": own.tolist(), "speeds": speeds.to_dict("list"),
    """,
    "21_from_loops_to_micro_kernel": """
        "recorded": climb == loops.recorded(), "gflops": loops.frame_climb(climb)["gflops"].to_dict(),
        "few": loops.frame_climb(climb, T=5)["roofline"].to_dict(), "tiles": tiles.to_dict(),
        "goal": {T: climb.of(loops.DIETLAB, T).gflops for T in climb.lengths},
        "bounds": [loops.bounds(climb, loops.Layer(T=T)) for T in (13, 14, 128)],
        "counts": counts.T.to_dict(),
    """,
    "22_ansor_and_dietcode": """
        "sketches": [loops.nest(sketch) for sketch in sketches],
        "ways": {T: ways(T, 4) for T in (97, 120, 128)}, "over": over.to_dict(), "curves": curves.to_dict(),
        "sizes": {T: len(space_of(T)) for T in times.columns}, "tried": len(tried), "cost": cost.to_dict(),
        "trials": {T: len(known) for T, known in tuned.items()}, "winner": "x".join(winner[:2]),
    """,
    "23_transfer": """
        "alike": alike.to_dict(), "quality": quality.to_dict(),
        "gains": gains.reset_index().to_dict("records"),
        "by_target": by_target.to_dict("index"), "knees": knees.dropna(subset=["Zen 3"]).to_dict(),
    """,
    "24_hand_written_units": """
        "right": [signed_right, packed_right], "sums": sums.tolist(), "products": products.tolist(),
        "wrong": shares, "most": most, "calls": len(calls), "fitting": fitting,
        "loops": {unit: names.to_dict() for unit, names in loops.items()}, "turns": turns,
        "bounds": bounds.to_dict(), "from_memory": measured.to_dict(), "hot": hot.to_dict(),
        "share": float(share.max().max()),
    """,
    "25_serving": """
        "curves": curves.to_dict(), "lost": lost.to_dict(), "eight": lost_by_eight.to_dict(),
        "traced": traced.to_dict(), "drift": drift.to_dict(),
        "fresh": [sorted(keys) for keys in fresh.values()],
        "records": len(run.records), "gained": gained, "shown": len(explorer.frame),
    """,
    "puzzles": """
        "solved": [p.check(a).solved for p, a in zip(puzzles.PUZZLES, answers)],
    """,
    "solutions": """
        "solved": [p.check(a).solved for p, a in zip(puzzles.PUZZLES, answers)],
    """,
    "26_roofline": """
        "half": intensity(1), "first": first, "cold": turns["cold: from T"].to_dict(),
        "warm": turns["last cache: from T"].to_dict(), "rotating": rotating["Zen 4"].dropna().to_dict(),
        "over": over[over > 100].tolist(), "wrong": wrong.to_dict(), "limit": limit,
        "fed": fed["FLOP/byte"].to_dict(), "shown": explorer.values,
    """,
    "27_gpu_waves": """
        "rooms": rooms.to_dict("index"), "estimated": estimated,
        "waves": {T: [launch.blocks, launch.waves, launch.empty] for T, launch in launches.items()},
        "curves": curves.to_dict(), "splits": splits.to_dict(),
        "ratios": {name: by.to_dict() for name, by in ratios.items()},
        "last": explorer.drawn.numbers["waves"],
    """,
    "28_convolution": """
        "axes": axes, "off": float(error), "bytes": sizes["size"].to_dict(), "pointers": pointers,
        "same": bool((np.array(runs).reshape(matrix.shape) == matrix).all()),
        "inside": inside["taps inside"].to_dict(), "counted": counted, "counts": counts,
        "ways": ways.to_dict(), "programs": programs, "libraries": len(resnet), "met": met,
        "family": table.to_dict("index"), "note": explorer.drawn.note,
        "outputs": [outputs(56, 3, padding=1), outputs(56, 3, 2, 1), outputs(9, 3, dilation=2)],
    """,
}
