"""Places on the cluster that trials had reserved for their workers, and nobody needs any more."""

from __future__ import annotations

from typing import Any

FREE_SECONDS = 2.0
"""How often what dead trials hold is looked for."""


def free_places_of_the_dead() -> None:
    """Give back what the workers of trials that were stopped, or died, had reserved, and what jobs
    that ended have left. Ray keeps it until the job ends, or for good, and Ray Train's own cleaner
    asks a dashboard, which a cluster that was started here has not: the next trial would wait for
    ever."""
    import ray
    from ray.util.placement_group import PlacementGroup, remove_placement_group

    try:  # Ray tells by no public name who made one
        from ray._private.state import state
        from ray._raylet import ActorID, PlacementGroupID
        from ray.core.generated import gcs_pb2

        accessor = state._connect_and_get_accessor()
        groups = accessor.get_placement_group_table()
        # Else every living driver would be asked what it runs.
        jobs = accessor.get_job_table(
            skip_submission_job_info_field=True, skip_is_running_tasks_field=True
        )
    except (ImportError, AttributeError, TypeError):  # a later Ray
        return
    table: Any = gcs_pb2  # whose classes are made as it is imported
    job = ray.get_runtime_context().get_job_id()
    ended = {each.job_id for each in map(table.JobTableData.FromString, jobs) if each.is_dead}
    for found in groups:
        group = table.PlacementGroupTableData.FromString(found)
        held = group.state != table.PlacementGroupTableData.REMOVED
        # The driver's own count as those of a dead actor, too: it is none.
        by_actor = group.creator_actor_id not in (b"", ActorID.nil().binary())
        dead = group.creator_actor_dead and group.creator_job_id.hex() == job
        # Ray forgets what was reserved just as its job was stopped.
        left = group.creator_job_id in ended and not group.is_detached
        if held and by_actor and (dead or left):
            remove_placement_group(PlacementGroup(PlacementGroupID(group.placement_group_id)))
