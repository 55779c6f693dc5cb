"""Which answers tell that the cluster has become another one."""

from gripfast.stores.etcd.meeting import Cluster, Known
from gripfast.stores.etcd.messages import PutRequest, PutResponse, ResponseHeader

PUT = PutRequest(b"key", b"value")


def seen(*answers: tuple[int, int]) -> Cluster:
    """A cluster that has given these answers, one after the other: id and revision."""
    cluster = Cluster("test")
    for answer in answers:
        tell(cluster, *answer)
    return cluster


def tell(cluster: Cluster, cluster_id: int, revision: int, known: Known | None = None) -> None:
    answer = PutResponse(ResponseHeader(cluster_id=cluster_id, revision=revision))
    cluster.notice(PUT, answer, known or cluster.known)


def test_a_smaller_revision_or_another_id_is_another_cluster() -> None:
    assert seen((7, 20), (7, 21)).epoch == 0
    assert seen((7, 20), (7, 19)).epoch == 1
    assert seen((7, 20), (8, 21)).epoch == 1
    assert seen((7, 20), (8, 21), (7, 22)).epoch == 2


def test_one_restored_backup_is_noticed_once() -> None:
    """Whatever answers were under way when it was noticed: from before it, or from after it."""
    for restored_id in (7, 8):
        cluster = seen((7, 20))
        before = cluster.known
        tell(cluster, restored_id, 11, before)
        tell(cluster, restored_id, 12, before)
        tell(cluster, 7, 21, before)
        assert (cluster.epoch, cluster.id, cluster.revision) == (1, restored_id, 11)
        tell(cluster, restored_id, 13)
        assert cluster.epoch == 1


def test_a_second_backup_is_noticed_by_the_next_request() -> None:
    for restored_id in (7, 8):
        cluster = seen((7, 20))
        before = cluster.known
        tell(cluster, 8, 15, before)
        tell(cluster, restored_id, 12, before)
        assert cluster.epoch == 1
        tell(cluster, restored_id, 13)
        assert cluster.epoch == 2


def test_a_cluster_that_was_never_seen_is_noticed_by_whatever_answer() -> None:
    cluster = seen((7, 20))
    before = cluster.known
    tell(cluster, 8, 15, before)
    tell(cluster, 9, 30, before)
    assert (cluster.epoch, cluster.id) == (2, 9)
