"""Names: the levels minigrid registers, and the kinds of mission of the mixed local level."""

KINDS = ("goto", "pickup", "open", "putnext", "pick_up_seq_go_to")
_NAMES = """
ActionObjDoor BlockedUnlockPickup BossLevel BossLevelNoUnlock FindObjS5 FindObjS6 FindObjS7 GoTo GoToDoor
GoToImpUnlock GoToLocal GoToLocalS5N2 GoToLocalS6N2 GoToLocalS6N3 GoToLocalS6N4 GoToLocalS7N4 GoToLocalS7N5
GoToLocalS8N2 GoToLocalS8N3 GoToLocalS8N4 GoToLocalS8N5 GoToLocalS8N6 GoToLocalS8N7 GoToObj GoToObjDoor GoToObjMaze
GoToObjMazeOpen GoToObjMazeS4 GoToObjMazeS4R2 GoToObjMazeS5 GoToObjMazeS6 GoToObjMazeS7 GoToObjS4 GoToObjS6 GoToOpen
GoToRedBall GoToRedBallGrey GoToRedBallNoDists GoToRedBlueBall GoToSeq GoToSeqS5R2 KeyCorridor KeyCorridorS3R1
KeyCorridorS3R2 KeyCorridorS3R3 KeyCorridorS4R3 KeyCorridorS5R3 KeyCorridorS6R3 KeyInBox MiniBossLevel
MoveTwoAcrossS5N2 MoveTwoAcrossS8N9 OneRoomS12 OneRoomS16 OneRoomS20 OneRoomS8 Open OpenDoor OpenDoorColor
OpenDoorDebug OpenDoorLoc OpenDoorsOrderN2 OpenDoorsOrderN2Debug OpenDoorsOrderN4 OpenDoorsOrderN4Debug
OpenRedBlueDoors OpenRedBlueDoorsDebug OpenRedDoor OpenTwoDoors Pickup PickupAbove PickupDist PickupDistDebug
PickupLoc PutNextLocal PutNextLocalS5N3 PutNextLocalS6N4 PutNextS4N1 PutNextS5N1 PutNextS5N2 PutNextS5N2Carrying
PutNextS6N3 PutNextS6N3Carrying PutNextS7N4 PutNextS7N4Carrying Synth SynthLoc SynthS5R2 SynthSeq UnblockPickup Unlock
UnlockLocal UnlockLocalDist UnlockPickup UnlockPickupDist UnlockToUnlock
"""
LEVELS = tuple(_NAMES.split())
