"""Who else acts: the PV controller, a provisioner, another scheduler, users, and what ends processes."""

from __future__ import annotations

from collections.abc import Iterator

from verification.model.preparing.state import FOREIGN, GONE, MADE, NONE, Config, Step, World, changed


def controllers(config: Config, world: World) -> Iterator[Step]:
    """Claims are bound: to the volume that names them, or to one that is made for the selected node."""
    for number, claim in enumerate(world.claims):
        if claim.volume != NONE:
            continue
        named = [at for at, volume in enumerate(world.volumes) if volume.claim == number]
        if named:
            bound = claim._replace(volume=named[0], rv=claim.rv + 1)
            yield ("PV controller binds", number), world._replace(claims=changed(world.claims, number, bound))
        elif claim.selected != NONE and config.provisions:
            bound = claim._replace(volume=MADE + claim.selected, rv=claim.rv + 1)
            yield ("provisioner makes", number), world._replace(claims=changed(world.claims, number, bound))


def faults(config: Config, world: World) -> Iterator[Step]:
    """What may go wrong, as often as is left."""
    left = world.left
    for number, claim in enumerate(world.claims):
        if left.fails and claim.volume == NONE and claim.selected != NONE:
            after = world._replace(left=left._replace(fails=left.fails - 1))
            free = claim._replace(selected=NONE, rv=claim.rv + 1)
            yield ("!provisioner fails", number), after._replace(claims=changed(world.claims, number, free))
        if left.foreigners and claim.volume == NONE and claim.selected == NONE and config.provisions:
            after = world._replace(left=left._replace(foreigners=left.foreigners - 1))
            for node in range(len(config.places)):
                taken = claim._replace(selected=node, rv=claim.rv + 1)
                yield ("!another selects", number, node), after._replace(claims=changed(world.claims, number, taken))
    yield from _endings(world)


def _endings(world: World) -> Iterator[Step]:
    left = world.left
    for number, volume in enumerate(world.volumes):
        if left.foreigners and volume.claim == NONE:
            after = world._replace(left=left._replace(foreigners=left.foreigners - 1))
            taken_volume = volume._replace(claim=FOREIGN, rv=volume.rv + 1)
            yield ("!another takes", number), after._replace(volumes=changed(world.volumes, number, taken_volume))
    for number, pod in enumerate(world.pods):
        if left.deletions and pod == NONE:
            after = world._replace(left=left._replace(deletions=left.deletions - 1))
            yield ("!user deletes", number), after._replace(pods=changed(world.pods, number, GONE))
    for number, attempt in enumerate(world.attempts):
        if left.crashes and attempt is not None:
            after = world._replace(left=left._replace(crashes=left.crashes - 1))
            yield ("!crash of", f"s{number}"), after._replace(attempts=changed(world.attempts, number, None))
